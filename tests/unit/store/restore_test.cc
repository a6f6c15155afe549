// A job that goes on from a snapshot computes what it would have computed without the break.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "conformance/store_suite.h"
#include "optim/optimizer_table.h"
#include "store/open_store.h"
#include "store/shard_snapshot.h"

namespace passel::testing {
namespace {

constexpr std::uint64_t kBefore = 4, kAfter = 100;  // steps

// What is kept of a job: all its floats, and its progress.
struct Kept {
  JobProgress progress;
  std::vector<std::vector<std::vector<float>>> floats;  // [shard][0: values, 1 + k: slots]
};

class RestoreTest : public ::testing::TestWithParam<std::tuple<Mode, int, std::string>> {
 protected:
  RestoreTest()
      : plan_(TestPlan(std::get<0>(GetParam()), std::get<1>(GetParam()), 2,
                       *ParseOptimizer(std::get<2>(GetParam())))) {}

  struct Job {
    std::unique_ptr<InProcessArena> arena;
    std::vector<std::unique_ptr<ParameterStore>> stores;
  };
  // Workers 0 and 1, before the first values.
  Job Start() {
    Job job;
    job.arena = std::move(*InProcessArena::Create(plan_));
    for (int k = 0; k < 2; ++k) {
      WaitOptions options;
      options.spin = std::chrono::microseconds(20);
      job.stores.push_back(std::move(*job.arena->Open(k, options)));
    }
    return job;
  }
  // Both workers in turn, in the same order each time.
  void Train(Job& job, std::uint64_t first_step, std::uint64_t steps) {
    for (std::uint64_t step = first_step; step < first_step + steps; ++step) {
      std::vector<Ticket> tickets;
      for (int k = 0; k < 2; ++k) {
        ParameterStore& store = *job.stores[static_cast<std::size_t>(k)];
        const Result<ParamView> view = store.Pull(PullMode::kView);
        ASSERT_TRUE(view.ok()) << view.status().ToString();
        GradientBuffer buffer = store.LendGradient();
        FillTestGradient(store, buffer, k, step);
        const Result<Ticket> ticket = store.Push(buffer, view->stamp(), Deadline::After(kLong));
        ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
        tickets.push_back(*ticket);
        store.counters().cursor_epochs.store(step);
        store.counters().cursor_index.store(10 * step + static_cast<std::uint64_t>(k));
      }
      for (std::size_t k = 0; k < 2; ++k) {
        ASSERT_TRUE(job.stores[k]->Wait(tickets[k], Deadline::After(kLong)).ok());
      }
    }
  }
  std::vector<ShardMemory> Shards(const Job& job) {
    std::vector<ShardMemory> shards;
    for (int s = 0; s < plan_.variables.shards(); ++s) shards.push_back(job.arena->shard(s));
    return shards;
  }
  Kept Keep(const Job& job) {
    Kept kept;
    const std::vector<ShardMemory> shards = Shards(job);
    kept.progress = ProgressOf(shards);
    for (std::size_t s = 0; s < shards.size(); ++s) {
      auto& floats = kept.floats.emplace_back();
      std::vector<float*> out;
      for (int k = 0; k <= shards[s].num_slots; ++k) floats.emplace_back(shards[s].floats);
      for (auto& part : floats) out.push_back(part.data());
      const ShardSnapshotInfo info = TakeShardSnapshot(shards[s], s == 0, out);
      EXPECT_EQ(info.exact_round.has_value(), plan_.mode.traits().rounds);
      EXPECT_EQ(info.progress.version, kept.progress.shards[s].version);
      EXPECT_EQ(info.progress.optimizer_step, kept.progress.shards[s].optimizer_step);
    }
    return kept;
  }

  const StorePlan plan_;
};

TEST_P(RestoreTest, GoesOnAsIfNothingHadHappened) {
  Job whole = Start();
  InitializeForReference(*whole.stores[0]);
  ASSERT_TRUE(whole.stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  const GroupRates set{0.25 * plan_.optimizer.learning_rate, 0};
  ASSERT_TRUE(whole.stores[0]->SetRates({&set, 1}).ok());
  Train(whole, 1, kBefore);
  const Kept kept = Keep(whole);
  EXPECT_EQ(kept.progress.rates, std::vector<GroupRates>{set});
  EXPECT_EQ(kept.progress.global_step,
            static_cast<std::int64_t>((plan_.mode.traits().rounds ? 1 : 2) * kBefore));
  EXPECT_EQ(kept.progress.workers.size(), 2u);
  EXPECT_EQ(kept.progress.workers[1].cursor_epochs, kBefore);
  EXPECT_EQ(kept.progress.workers[1].cursor_index, 10 * kBefore + 1);
  EXPECT_EQ(kept.progress.workers[1].local_steps, kBefore);
  if (plan_.mode.traits().bounded) {
    EXPECT_EQ(kept.progress.workers[1].clock, kBefore);
  }

  Job restored = Start();
  const Status status =
      restored.stores[0]->Restore(kept.progress, [&](VarId id, int k, std::span<float> to) {
        const VariableInfo& v = plan_.variables[id];
        const auto& from =
            kept.floats[static_cast<std::size_t>(v.shard)][static_cast<std::size_t>(k)];
        std::memcpy(to.data(), from.data() + v.offset, to.size_bytes());
      });
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_TRUE(restored.stores[1]->WaitUntilInitialized(Deadline::After(kLong)).ok());
  EXPECT_EQ(restored.stores[1]->counters().cursor_index.load(), 10 * kBefore + 1);
  EXPECT_EQ(restored.stores[1]->counters().local_steps.load(), kBefore);
  Train(whole, kBefore + 1, kAfter);
  Train(restored, kBefore + 1, kAfter);
  const Kept a = Keep(whole);
  const Kept b = Keep(restored);
  EXPECT_EQ(b.progress.global_step, a.progress.global_step);
  for (std::size_t s = 0; s < a.floats.size(); ++s) {
    EXPECT_EQ(b.progress.shards[s].version, a.progress.shards[s].version);
    EXPECT_EQ(b.progress.shards[s].optimizer_step, a.progress.shards[s].optimizer_step);
  }
  for (const VariableInfo& v : plan_.variables.all()) {
    const auto s = static_cast<std::size_t>(v.shard);
    for (std::size_t k = 0; k < a.floats[s].size(); ++k) {
      EXPECT_EQ(std::memcmp(a.floats[s][k].data() + v.offset, b.floats[s][k].data() + v.offset,
                            v.elements * sizeof(float)),
                0)
          << v.name << ", " << (k == 0 ? "values" : "slot variable");
      EXPECT_TRUE(std::all_of(b.floats[s][k].begin(), b.floats[s][k].end(),
                              [](float x) { return std::isfinite(x); }));
    }
  }
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(b.progress.workers[k].clock, a.progress.workers[k].clock);
    EXPECT_EQ(b.progress.workers[k].cursor_index, a.progress.workers[k].cursor_index);
    EXPECT_EQ(b.progress.workers[k].local_steps, a.progress.workers[k].local_steps);
  }
}

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : Optimizers()) names.emplace_back(row.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, RestoreTest,
                         ::testing::Combine(::testing::ValuesIn(kAllModes), ::testing::Values(1, 3),
                                            ::testing::ValuesIn(OptimizerNames())),
                         [](const auto& row) {
                           return std::string(ModeName(std::get<0>(row.param))) + "_" +
                                  std::to_string(std::get<1>(row.param)) + "_" +
                                  std::get<2>(row.param);
                         });

}  // namespace
}  // namespace passel::testing
