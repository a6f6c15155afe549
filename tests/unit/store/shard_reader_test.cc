// Copies of blocks while others train in them: what is called exact is one state, whoever writes.

#include "store/shard_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "store/block_claims.h"
#include "store/membership.h"
#include "store/open_store.h"
#include "support/sanitized.h"

namespace passel {
namespace {

constexpr auto kReadLimit = std::chrono::seconds(60);

StorePlan PlanOf(Mode mode, const OptimizerConfig& optimizer, std::size_t elements,
                 std::size_t block_floats, int workers) {
  StorePlan plan;
  plan.mode = mode;
  if (mode == Mode::kSsp) plan.mode.number = kMaxStalenessBound;
  plan.num_workers = workers;
  plan.gradient_slots = 1;
  plan.block_floats = block_floats;
  plan.optimizer = optimizer;
  VariableInfo v;
  v.name = v.logical = "w";
  v.shape = {static_cast<std::int64_t>(elements)};
  plan.variables = *VariableTable::Build({v}, 1);
  return plan;
}

// A job whose workers push the same gradient for every element.
class ReaderJob {
 public:
  explicit ReaderJob(const StorePlan& plan) : arena_(std::move(*InProcessArena::Create(plan))) {
    WaitOptions options;
    options.spin = std::chrono::microseconds(20);
    for (int k = 0; k < plan.num_workers; ++k) {
      stores_.push_back(std::move(*arena_->Open(k, options)));
    }
    const auto zeros = [](VarId, std::span<float> to) { std::ranges::fill(to, 0.0F); };
    EXPECT_TRUE(stores_[0]->Initialize(zeros).ok());
    for (auto& store : stores_) {
      EXPECT_TRUE(store->WaitUntilInitialized(Deadline::After(kReadLimit)).ok());
    }
  }
  const ShardMemory& memory() const { return arena_->shard(0); }

  void Push(int worker, float gradient) {
    ParameterStore& store = *stores_[static_cast<std::size_t>(worker)];
    const auto view = store.Pull(PullMode::kView);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    const GradientBuffer buffer = store.LendGradient();
    std::ranges::fill(buffer.values(0), gradient);
    const auto ticket = store.Push(buffer, view->stamp(), Deadline::After(kReadLimit));
    ASSERT_TRUE(ticket.ok()) << ticket.status().ToString();
    ASSERT_TRUE(store.Wait(*ticket, Deadline::After(kReadLimit)).ok());
  }
  // All workers at once; `running` until the last one is through.
  std::thread PushFromAll(int pushes, float gradient, std::chrono::microseconds pause,
                          std::atomic<bool>* running) {
    running->store(true);
    return std::thread([=, this] {
      std::vector<std::thread> writers;
      for (int k = 0; k < memory().num_workers; ++k) {
        writers.emplace_back([=, this] {
          for (int i = 0; i < pushes; ++i) {
            Push(k, gradient);
            const Deadline end = Deadline::After(pause);
            while (!end.Expired()) std::this_thread::yield();
          }
        });
      }
      for (std::thread& writer : writers) writer.join();
      running->store(false);
    });
  }

 private:
  const std::unique_ptr<InProcessArena> arena_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
};

// Values (0) and slot variables of one block.
struct BlockCopy {
  explicit BlockCopy(const ShardMemory& memory)
      : parts(static_cast<std::size_t>(1 + memory.num_slots),
              std::vector<float>(memory.block_floats)) {
    for (auto& part : parts) out.push_back(part.data());
  }
  std::vector<std::vector<float>> parts;
  std::vector<float*> out;
};

// --- One reader, and words as a writer leaves them -----------------------------------------------

class ShardReaderTest : public ::testing::Test {
 protected:
  void Start(Mode mode) {
    job_ = std::make_unique<ReaderJob>(PlanOf(mode, *ParseOptimizer("momentum"), 40, 16, 2));
    job_->Push(0, -1);
    copy_ = std::make_unique<BlockCopy>(job_->memory());
  }
  Result<bool> Read(std::size_t block, std::chrono::milliseconds limit = kReadLimit) {
    return ShardReader(job_->memory()).ReadBlock(block, copy_->out, Deadline::After(limit));
  }
  BlockState& block(std::size_t b) { return job_->memory().blocks[b]; }

  std::unique_ptr<ReaderJob> job_;
  std::unique_ptr<BlockCopy> copy_;
};

TEST_F(ShardReaderTest, CopiesTheFloatsOfItsBlockAndNoOthers) {
  Start(Mode::kLocked);
  const ShardMemory& m = job_->memory();
  const std::size_t last = m.num_blocks - 1;
  ASSERT_LT(m.BlockSize(last), m.block_floats + 1);
  for (std::size_t i = 0; i < m.floats; ++i) {
    m.values[i] = static_cast<float>(i);
    m.slots[0][i] = 1000.0F + static_cast<float>(i);
  }
  for (std::size_t b = 0; b < m.num_blocks; ++b) {
    for (auto& part : copy_->parts) std::ranges::fill(part, -7.0F);
    ASSERT_TRUE(*Read(b));
    for (std::size_t i = 0; i < m.block_floats; ++i) {
      const bool in = i < m.BlockSize(b);
      const auto at = static_cast<float>(m.BlockBegin(b) + i);
      EXPECT_EQ(copy_->parts[0][i], in ? at : -7.0F);
      EXPECT_EQ(copy_->parts[1][i], in ? 1000.0F + at : -7.0F);
    }
  }
  // As far as `out` goes.
  copy_->parts[1].assign(m.block_floats, -7.0F);
  EXPECT_TRUE(*ShardReader(m).ReadBlock(0, {copy_->out.data(), 1}, Deadline::After(kReadLimit)));
  EXPECT_EQ(copy_->parts[1][0], -7.0F);
}

TEST_F(ShardReaderTest, EveryPushIsCountedAtEachOfItsBlocks) {
  for (const Mode mode : {Mode::kHogwild, Mode::kLocked, Mode::kSsp}) {
    Start(mode);
    job_->Push(1, -1);
    for (std::size_t b = 0; b < job_->memory().num_blocks; ++b) {
      EXPECT_EQ(block(b).updates.load(), 2u);
      EXPECT_EQ(block(b).overlaps.load(), 0u);
    }
  }
}

TEST_F(ShardReaderTest, BindingClaimIsWaitedForUntilItIsGivenBack) {
  Start(Mode::kLocked);
  ASSERT_TRUE(TryClaim(block(1), Claim{1, 1}));
  const Result<bool> late = Read(1, std::chrono::milliseconds(20));
  ASSERT_EQ(late.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), ::testing::HasSubstr("block 1"));
  EXPECT_THAT(late.status().message(), ::testing::HasSubstr("worker 1"));
  EXPECT_TRUE(*Read(0)) << "its neighbour";
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ReleaseClaim(block(1), Claim{1, 1});
  });
  EXPECT_TRUE(*Read(1));
  holder.join();
}

TEST_F(ShardReaderTest, WhereClaimsAreAdvisoryABusyBlockIsMixedAtOnce) {
  for (const Mode mode : {Mode::kHogwild, Mode::kSsp}) {
    Start(mode);
    ASSERT_TRUE(TryClaim(block(1), Claim{1, 1}));
    const std::int64_t begin = MonotonicNs();
    EXPECT_FALSE(*Read(1));
    EXPECT_LT(MonotonicNs() - begin, 2'000'000'000);
    EXPECT_EQ(copy_->parts[0][0], job_->memory().values[16]) << "a copy all the same";
    ReleaseClaim(block(1), Claim{1, 1});
    EXPECT_TRUE(*Read(1));
  }
}

TEST_F(ShardReaderTest, DeadHolderHangsNobodyAndLeavesAMixedBlockUntilItIsTakenOver) {
  Start(Mode::kLocked);
  ASSERT_TRUE(TryClaim(block(1), Claim{1, 1}));
  ASSERT_TRUE(MarkDead(job_->memory(), 1, 1));
  EXPECT_FALSE(*Read(1));
  job_->Push(0, -1);
  EXPECT_TRUE(*Read(1));
}

TEST_F(ShardReaderTest, HolderWhoseProcessIsGoneHangsNobodyThoughNobodyHasSaidSo) {
  Start(Mode::kLocked);
  ASSERT_TRUE(TryClaim(block(1), Claim{1, 1}));
  job_->memory().tasks[1].identity[1].start_time += 1;  // another process has its number
  EXPECT_FALSE(*Read(1));
}

TEST_F(ShardReaderTest, WriterWithoutAClaimMakesABlockMixed) {
  Start(Mode::kHogwild);
  job_->memory().tasks[1].overlapping.store(2);
  EXPECT_FALSE(*Read(1));
  EXPECT_TRUE(*Read(0));
  // It died there: nobody writes any more.
  ASSERT_TRUE(MarkDead(job_->memory(), 1, 1));
  EXPECT_TRUE(*Read(1));
}

TEST_F(ShardReaderTest, WhoGoesAheadWithoutAClaimSaysInWhichBlockItIs) {
  constexpr std::size_t kBlocks = 5'000;
  ReaderJob job(PlanOf(Mode::kHogwild, *ParseOptimizer("sgd"), 256 * kBlocks, 256, 2));
  const ShardMemory& m = job.memory();
  for (std::size_t b = 0; b < kBlocks; ++b) m.blocks[b].claim.store(Claim{1, 0}.Pack());
  std::atomic<bool> done{false};
  std::thread writer([&] {
    while (m.tasks[1].counters.overlapped_blocks.load() < 20 * kBlocks) job.Push(1, -1);
    done.store(true);
  });
  std::uint64_t seen = 0;
  while (!done.load()) {
    const std::uint64_t word = m.tasks[1].overlapping.load();
    ASSERT_LE(word, kBlocks);
    seen += word != 0;
  }
  writer.join();
  EXPECT_GT(seen, 0u);
  EXPECT_EQ(m.tasks[1].overlapping.load(), 0u);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    ASSERT_EQ(m.blocks[b].overlaps.load(), 20u);
    ASSERT_EQ(m.blocks[b].updates.load(), 0u) << "it held nothing";
  }
}

// --- Readers beside writers ----------------------------------------------------------------------
//
// Every gradient is 1 in every element, so after t updates all elements are in the same state, a
// known one: a copy that holds parts of two is seen at once.

class ShardReaderRace : public ::testing::TestWithParam<std::tuple<Mode, const char*>> {
 protected:
  // Values and slot variables of one element after each number of updates, found by the value.
  static std::map<float, std::vector<float>> States(const OptimizerConfig& optimizer, int updates) {
    ReaderJob job(PlanOf(Mode::kLocked, optimizer, 16, 16, 1));
    std::map<float, std::vector<float>> states;
    for (int t = 0; t <= updates; ++t) {
      const ShardMemory& m = job.memory();
      std::vector<float>& state = states[m.values[0]];
      EXPECT_TRUE(state.empty()) << "update " << t << " leaves the value as it was";
      state.push_back(m.values[0]);
      for (int k = 0; k < m.num_slots; ++k) state.push_back(m.slots[k][0]);
      if (t < updates) job.Push(0, 1);
    }
    return states;
  }
};

TEST_P(ShardReaderRace, WhatIsCalledExactIsOneStateOfTheWholeBlock) {
  const auto [mode, name] = GetParam();
  OptimizerConfig optimizer = *ParseOptimizer(name);
  optimizer.learning_rate = 0.01;
  constexpr int kPushes = Turns(600, 200);
  // Where the order of two workers' updates makes a difference, and where updates that meet are
  // lost, there is one.
  const bool commutes = optimizer.kind != OptimizerKind::kAdam;
  const int workers = IsRoundMode(mode) || (mode == Mode::kLocked && commutes) ? 2 : 1;
  const auto states = States(optimizer, workers * kPushes);
  // One block that takes as long to copy as to update.
  constexpr std::size_t kWide = 16384;
  ReaderJob job(PlanOf(mode, optimizer, kWide, kWide, workers));
  BlockCopy copy(job.memory());
  std::atomic<bool> running{false};
  std::thread writers = job.PushFromAll(kPushes, 1, std::chrono::microseconds(40), &running);
  int exact = 0;
  int mixed = 0;
  const ShardReader reader(job.memory());
  while (running.load()) {
    const Result<bool> read = reader.ReadBlock(0, copy.out, Deadline::After(kReadLimit));
    if (!read.ok()) ADD_FAILURE() << read.status().ToString();
    if (!read.ok()) break;
    ++(*read ? exact : mixed);
    if (!*read) continue;
    const auto state = states.find(copy.parts[0][0]);
    if (state == states.end()) ADD_FAILURE() << copy.parts[0][0] << " is no state";
    if (state == states.end()) break;
    for (std::size_t k = 0; k < copy.parts.size(); ++k) {
      const auto other =
          std::ranges::find_if(copy.parts[k], [&](float x) { return x != state->second[k]; });
      if (other == copy.parts[k].end()) continue;
      ADD_FAILURE() << (k == 0 ? "values" : "slot variable") << " of another update at "
                    << other - copy.parts[k].begin();
      break;
    }
    if (HasFailure()) break;
  }
  writers.join();
  RecordProperty("exact", exact);
  RecordProperty("mixed", mixed);
  EXPECT_GT(exact, 0);
  const bool waits = mode != Mode::kHogwild && mode != Mode::kSsp;
  if (waits) {
    EXPECT_EQ(mixed, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ShardReaderRace,
    ::testing::Combine(::testing::Values(Mode::kHogwild, Mode::kLocked, Mode::kSsp, Mode::kBarrier),
                       ::testing::Values("sgd", "momentum", "adagrad", "adam")),
    [](const auto& row) {
      return std::string(ModeName(std::get<0>(row.param))) + "_" + std::get<1>(row.param);
    });

// The mean share of updates that are missing in the values.
double LostShare(Mode mode, bool with_reader) {
  constexpr int kPushes = Turns(1000, 100);
  constexpr int kWriters = 2;
  OptimizerConfig counting;
  counting.learning_rate = 1;
  ReaderJob job(PlanOf(mode, counting, 16 * 2048, 2048, kWriters));
  const ShardMemory& m = job.memory();
  BlockCopy copy(m);
  std::atomic<bool> running{false};
  std::thread writers = job.PushFromAll(kPushes, -1, std::chrono::microseconds(0), &running);
  const ShardReader reader(m);
  int turns = 0;
  while (with_reader && running.load()) {
    for (std::size_t b = 0; b < m.num_blocks; ++b) {
      EXPECT_TRUE(reader.ReadBlock(b, copy.out, Deadline::After(kReadLimit)).ok());
    }
    ++turns;
  }
  writers.join();
  if (with_reader) {
    EXPECT_GT(turns, 0);
  }
  double sum = 0;
  for (std::size_t i = 0; i < m.floats; ++i) sum += static_cast<double>(m.values[i]);
  return 1 - sum / (static_cast<double>(m.floats) * kPushes * kWriters);
}

TEST(ShardReaderLoss, LockedLosesNothingWhileAReaderCopies) {
  EXPECT_EQ(LostShare(Mode::kLocked, true), 0);
}

// In turn, so that whatever else the machine does meets both; the middle one of each, since a
// writer that is put aside in the middle of an update may lose more in one run than all others
// together.
void ExpectNoMoreLostWhileAReaderCopies(Mode mode) {
  constexpr std::size_t kPairs = 9;
  std::vector<double> without, with;
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    without.push_back(LostShare(mode, false));
    with.push_back(LostShare(mode, true));
  }
  std::ranges::sort(without);
  std::ranges::sort(with);
  std::printf("lost without a reader %.4f %% (%.4f to %.4f), with one %.4f %% (%.4f to %.4f)\n",
              100 * without[kPairs / 2], 100 * without.front(), 100 * without.back(),
              100 * with[kPairs / 2], 100 * with.front(), 100 * with.back());
  // The reader is a third thread: where it has no core of its own, writers meet more often.
  EXPECT_LE(with[kPairs / 2], 2 * without[kPairs / 2] + 0.001);
}

TEST(ShardReaderLoss, HogwildLosesNoMoreWhileAReaderCopiesThanWithout) {
  ExpectNoMoreLostWhileAReaderCopies(Mode::kHogwild);
}

TEST(ShardReaderLoss, SspLosesNoMoreWhileAReaderCopiesThanWithout) {
  ExpectNoMoreLostWhileAReaderCopies(Mode::kSsp);
}

}  // namespace
}  // namespace passel
