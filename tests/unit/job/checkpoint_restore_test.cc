// A job that goes on from a checkpoint, on other ps, computes what it would have computed without
// the break.

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "job/checkpoint_part.h"
#include "store/open_store.h"
#include "store/shard_snapshot.h"
#include "support/every_optimizer.h"
#include "support/temp_dir.h"
#include "train/checkpoint_set.h"
#include "unit/job/checkpoint_sample.h"

namespace passel::job::testing {
namespace {

constexpr std::chrono::seconds kLong{20};
constexpr int kWorkers = 2;

using Wholes = std::map<std::string, std::vector<std::vector<float>>>;  // [variable][k]

class Job {
 public:
  Job(const ModelConfig& model, const OptimizerConfig& optimizer, ModeSetting mode, int shards,
      std::mt19937& random)
      : model_(model), specs_(ModelVariables(model)) {
    plan_.mode = mode;
    plan_.optimizer = optimizer;
    plan_.num_workers = kWorkers;
    plan_.gradient_slots = 3;
    plan_.block_floats = 64;
    plan_.variables = RandomTable(model, shards, random);
    arena_ = std::move(*InProcessArena::Create(plan_));
    WaitOptions options;
    options.spin = std::chrono::microseconds(20);
    for (int k = 0; k < kWorkers; ++k) stores_.push_back(std::move(*arena_->Open(k, options)));
  }

  void Initialize() {
    const Status status = stores_[0]->Initialize([&](VarId id, std::span<float> out) {
      const VariableInfo& v = plan_.variables[id];
      InitializeVariable(model_, NumberOf(v), static_cast<std::size_t>(v.first_row), out);
    });
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(stores_[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  }

  void Restore(const CheckpointSet& set) {
    const Status fits = set.Check(plan_.variables, OptimizerWordsOf(plan_.optimizer));
    ASSERT_TRUE(fits.ok()) << fits.ToString();
    const Status status = stores_[0]->Restore(
        set.ProgressOn(plan_.variables.shards()), [&](VarId id, int k, std::span<float> out) {
          const Status filled = set.Fill(plan_.variables[id], k, out);
          EXPECT_TRUE(filled.ok()) << filled.ToString();
        });
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(stores_[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  }

  // Both workers in turn, in the same order each time.
  void Train(int first_step, int steps) {
    for (int step = first_step; step < first_step + steps; ++step) {
      std::vector<Ticket> tickets;
      for (int k = 0; k < kWorkers; ++k) {
        ParameterStore& store = *stores_[static_cast<std::size_t>(k)];
        const Result<ParamView> view = store.Pull(PullMode::kView);
        ASSERT_TRUE(view.ok()) << view.status().ToString();
        GradientBuffer buffer = store.LendGradient();
        for (VarId id = 0; id < plan_.variables.size(); ++id) {
          FillGradient(plan_.variables[id], k, step, buffer.values(id));
        }
        const Result<Ticket> ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
        ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
        tickets.push_back(*ticket);
        store.counters().cursor_epochs.store(static_cast<std::uint64_t>(step));
        store.counters().cursor_index.store(static_cast<std::uint64_t>(10 * step + k));
      }
      for (std::size_t k = 0; k < kWorkers; ++k) {
        ASSERT_TRUE(stores_[k]->Wait(tickets[k], Deadline::After(kLong)).ok());
      }
    }
  }

  void Save(const std::string& folder) {
    const int shards = plan_.variables.shards();
    const JobProgress progress = Progress();
    CheckpointWords words;
    words.model = model_;
    words.ps = shards;
    words.workers = kWorkers;
    for (int s = 0; s < shards; ++s) {
      const ShardMemory& shard = arena_->shard(s);
      std::vector<const float*> contents = {shard.values};
      for (int k = 0; k < shard.num_slots; ++k) contents.push_back(shard.slots[k]);
      CopySource source(std::move(contents), shard.floats, plan_.block_floats);
      PartOrder order{folder, progress.global_step, "save", s, shards, {}};
      AddWords(words, &order.metadata);
      const auto written = WritePart(order, plan_, progress, source);
      ASSERT_TRUE(written.ok()) << written.status().ToString();
    }
  }

  Wholes Contents() const {
    Wholes wholes;
    for (const VariableInfo& v : plan_.variables.all()) {
      const ShardMemory& shard = arena_->shard(v.shard);
      auto& whole = wholes[v.logical];
      whole.resize(static_cast<std::size_t>(1 + shard.num_slots),
                   std::vector<float>(specs_[NumberOf(v)].elements()));
      for (int k = 0; k <= shard.num_slots; ++k) {
        const float* const from = k == 0 ? shard.values : shard.slots[k - 1];
        std::copy_n(from + v.offset, v.elements,
                    whole[static_cast<std::size_t>(k)].begin() + FirstElement(v));
      }
    }
    return wholes;
  }
  std::int64_t global_step() const { return stores_[0]->global_step(); }
  // Versions, clocks, cursors.
  JobProgress Progress() const {
    std::vector<ShardMemory> memory;
    for (int s = 0; s < plan_.variables.shards(); ++s) memory.push_back(arena_->shard(s));
    return ProgressOf(memory);
  }

 private:
  std::size_t NumberOf(const VariableInfo& v) const {
    std::size_t number = 0;
    while (specs_[number].name != v.logical) ++number;
    return number;
  }
  std::ptrdiff_t FirstElement(const VariableInfo& v) const {
    return static_cast<std::ptrdiff_t>(static_cast<std::size_t>(v.first_row) *
                                       specs_[NumberOf(v)].cols());
  }
  // The same for an element wherever it lies.
  void FillGradient(const VariableInfo& v, int worker, int step, std::span<float> out) const {
    const auto first = static_cast<std::size_t>(FirstElement(v));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t mixed = ((first + i) * 131 + NumberOf(v) * 17 +
                                 static_cast<std::size_t>(worker * 7 + step * 29)) %
                                211;
      out[i] = static_cast<float>(mixed) / 105.5F - 1;
    }
  }

  const ModelConfig model_;
  const std::vector<VariableSpec> specs_;
  StorePlan plan_;
  std::unique_ptr<InProcessArena> arena_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
};

void ExpectSameProgress(const JobProgress& a, const JobProgress& b) {
  EXPECT_EQ(a.global_step, b.global_step);
  for (const JobProgress::Shard& shard : b.shards) {
    EXPECT_EQ(shard.version, a.shards[0].version);
    EXPECT_EQ(shard.optimizer_step, a.shards[0].optimizer_step);
  }
  ASSERT_EQ(a.workers.size(), b.workers.size());
  for (std::size_t k = 0; k < a.workers.size(); ++k) {
    EXPECT_EQ(a.workers[k].clock, b.workers[k].clock);
    EXPECT_EQ(a.workers[k].cursor_epochs, b.workers[k].cursor_epochs);
    EXPECT_EQ(a.workers[k].cursor_index, b.workers[k].cursor_index);
    EXPECT_EQ(a.workers[k].local_steps, b.workers[k].local_steps);
  }
}

TEST(CheckpointRestoreTest, EveryModeAndOptimizerGoesOnOnAnyOtherShards) {
  constexpr int kBefore = 20, kAfter = 100;  // steps
  std::mt19937 random(15);
  for (std::size_t m = 0; m < std::size(kModes); ++m) {
    for (const OptimizerConfig& optimizer : EveryOptimizer()) {
      const ModeSetting mode(static_cast<Mode>(m), kModes[m].bounded ? 9 : 0);
      const int from = 1 + static_cast<int>(random() % 4), to = 1 + static_cast<int>(random() % 4);
      const std::string what = mode.ToString() + " " + std::string(OptimizerName(optimizer.kind)) +
                               " " + std::to_string(from) + " -> " + std::to_string(to);
      const ModelConfig model = SampleModel({9});
      const test::TempDir dir;
      Job whole(model, optimizer, mode, from, random);
      whole.Initialize();
      whole.Train(1, kBefore);
      whole.Save(dir.path());
      const std::string name = "model.ckpt-" + std::to_string(whole.global_step());
      const auto set = CheckpointSet::Open(dir.path(), name);
      ASSERT_TRUE(set.ok()) << what << ": " << set.status().ToString();

      SCOPED_TRACE(what);
      Job restored(model, optimizer, mode, to, random);
      restored.Restore(*set);
      const JobProgress progress = restored.Progress();
      EXPECT_EQ(progress.workers[1].cursor_index, 10u * kBefore + 1);
      EXPECT_EQ(progress.workers[1].cursor_epochs, static_cast<std::uint64_t>(kBefore));
      EXPECT_EQ(progress.workers[1].clock, mode.traits().bounded ? 1u * kBefore : 0u);
      ExpectSameProgress(whole.Progress(), progress);
      whole.Train(kBefore + 1, kAfter);
      restored.Train(kBefore + 1, kAfter);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      EXPECT_GE(restored.global_step(), kBefore + kAfter);
      ExpectSameProgress(whole.Progress(), restored.Progress());
      const Wholes a = whole.Contents(), b = restored.Contents();
      for (const auto& [variable, contents] : a) {
        for (std::size_t k = 0; k < contents.size(); ++k) {
          EXPECT_TRUE(SameBits(contents[k], b.at(variable)[k])) << variable << ", " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace passel::job::testing
