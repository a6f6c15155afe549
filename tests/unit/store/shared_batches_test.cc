#include "store/shared_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/process_identity.h"
#include "store/membership.h"
#include "store/open_store.h"
#include "unit/store/small_plan.h"

namespace passel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kEndless = ~std::uint64_t{0};
constexpr BatchRules kTen = {100, 10, 1};  // batches in an epoch
const auto kNone = std::optional<std::uint64_t>();

class SharedBatchesTest : public ::testing::Test {
 protected:
  explicit SharedBatchesTest(int workers = 4)
      : arena_(std::move(*InProcessArena::Create(SmallPlan(workers)))) {}
  const ShardMemory& lead() const { return arena_->shard(0); }
  std::unique_ptr<SharedBatches> Begin(int worker, std::uint64_t end = kEndless) {
    const auto joined = Join(lead(), worker, SelfIdentity());
    EXPECT_TRUE(joined.ok()) << joined.status().ToString();
    auto batches = SharedBatches::Create(lead(), worker, kTen, end);
    EXPECT_TRUE(batches.ok()) << batches.status().ToString();
    return std::move(*batches);
  }
  void Die(int worker) { EXPECT_TRUE(MarkDead(lead(), worker, StateOf(lead(), worker).epoch)); }
  std::unique_ptr<InProcessArena> arena_;
};

TEST_F(SharedBatchesTest, EachOnceWhileNobodyDies) {
  std::vector<std::vector<std::uint64_t>> given(4);
  std::vector<std::unique_ptr<SharedBatches>> workers;
  for (int k = 0; k < 4; ++k) workers.push_back(Begin(k, 3000));
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      while (const auto batch = *workers[k]->Next()) {
        given[k].push_back(*batch);
        if (*batch % 3 == k % 3) workers[k]->Done();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& each : given) all.insert(all.end(), each.begin(), each.end());
  std::ranges::sort(all);
  ASSERT_EQ(all.size(), 3000u);
  for (std::uint64_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
  EXPECT_THAT(BatchesOf(lead()).open, IsEmpty()) << "whoever finds nothing left is done";
}

TEST_F(SharedBatchesTest, WhatADeadWorkerHeldIsGivenAgain) {
  const auto zero = Begin(0, 20);
  auto one = Begin(1, 20);
  EXPECT_EQ(*one->Next(), 0u);
  one->Done();
  EXPECT_EQ(*one->Next(), 1u);
  EXPECT_EQ(*one->Next(), 2u);
  EXPECT_EQ(*zero->Next(), 3u);
  EXPECT_THAT(BatchesOf(lead()).open, ElementsAre(1, 2, 3));
  Die(1);
  EXPECT_EQ(one->Next().status().code(), Code::kAborted);
  // Its next life has them at once, and when that is too late anybody at the end of the epoch.
  one = Begin(1, 20);
  EXPECT_EQ(*one->Next(), 1u);
  one->Done();
  Die(1);
  for (std::uint64_t batch = 4; batch < 10; ++batch) EXPECT_EQ(*zero->Next(), batch);
  EXPECT_EQ(*zero->Next(), 2u);
  one = Begin(1, 20);
  EXPECT_EQ(*one->Next(), 10u);
  // Also at the end of all.
  for (std::uint64_t batch = 11; batch < 20; ++batch) EXPECT_EQ(*zero->Next(), batch);
  ASSERT_TRUE(Leave(lead(), 1, StateOf(lead(), 1).epoch));
  EXPECT_EQ(*zero->Next(), 10u) << "it left with that";
  EXPECT_EQ(*zero->Next(), kNone);
  EXPECT_EQ(*zero->Next(), kNone);
  EXPECT_THAT(BatchesOf(lead()).open, IsEmpty());
}

// Who finds nothing left may wait for what comes back if its holder dies.
TEST_F(SharedBatchesTest, WhoHasTheLastOnesIsKnown) {
  const auto zero = Begin(0, 10);
  auto one = Begin(1, 10);
  for (std::uint64_t batch = 0; batch < 8; ++batch) EXPECT_EQ(*zero->Next(), batch);
  EXPECT_EQ(*one->Next(), 8u);
  EXPECT_EQ(*one->Next(), 9u);
  EXPECT_EQ(*zero->Next(), kNone);
  EXPECT_EQ(zero->StillHeldBy(), 1);
  EXPECT_EQ(one->StillHeldBy(), std::nullopt) << "but for its own";
  Die(1);
  EXPECT_EQ(zero->StillHeldBy(), 1) << "until somebody takes them";
  EXPECT_EQ(*zero->Next(), 8u);
  one = Begin(1, 10);
  EXPECT_EQ(*one->Next(), 9u);
  EXPECT_EQ(zero->StillHeldBy(), 1);
  EXPECT_EQ(*zero->Next(), kNone);
  one->Done();
  EXPECT_EQ(zero->StillHeldBy(), std::nullopt);
  // Those of others who want more epochs are not waited for.
  Die(1);
  one = Begin(1, 20);
  EXPECT_EQ(*one->Next(), 10u);
  EXPECT_EQ(zero->StillHeldBy(), std::nullopt);
}

// Killed between its two writes a worker holds what it was not given.
TEST_F(SharedBatchesTest, WhatWasNotGivenIsNotGivenAgain) {
  const auto zero = Begin(0, 20);
  auto one = Begin(1, 20);
  EXPECT_EQ(*zero->Next(), 0u);
  lead().tasks[1].held[0].store(Arrival{1, 1 + 1}.Pack());
  EXPECT_THAT(BatchesOf(lead()).open, ElementsAre(0));
  Die(1);
  one = Begin(1, 20);
  EXPECT_EQ(*one->Next(), 1u);
  EXPECT_EQ(*zero->Next(), 2u);
  EXPECT_THAT(BatchesOf(lead()).open, ElementsAre(0, 1, 2));
  // Nor to others at the end of an epoch.
  one->Done();
  for (std::uint64_t batch = 3; batch < 10; ++batch) EXPECT_EQ(*zero->Next(), batch);
  lead().tasks[1].held[0].store(Arrival{2, 10 + 1}.Pack());
  Die(1);
  EXPECT_EQ(*zero->Next(), 10u);
  EXPECT_EQ(*zero->Next(), 11u);
}

TEST_F(SharedBatchesTest, EightAreHeldAndThenTheFirstCountsAsDone) {
  const auto zero = Begin(0);
  for (std::uint64_t batch = 0; batch < 9; ++batch) EXPECT_EQ(*zero->Next(), batch);
  EXPECT_THAT(BatchesOf(lead()).open, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  // Who begins to share anew has them again.
  const auto again = std::move(*SharedBatches::Create(lead(), 0, kTen, kEndless));
  std::set<std::uint64_t> given;
  for (int i = 0; i < 8; ++i) given.insert(**again->Next());
  EXPECT_THAT(given, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(*again->Next(), 9u);
}

TEST_F(SharedBatchesTest, OtherDataAreRefusedAndBothNamed) {
  Begin(0);
  const Status status =
      SharedBatches::Create(lead(), 1, {100, 20, 0}, kEndless, WorkerNames{}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("shares 100 examples in batches of 20, in order, and the job 100 "
                              "examples in batches of 10, shuffled with seed 0")));
}

TEST_F(SharedBatchesTest, AJobOfAnotherSizeGoesOnWhereTheOtherWas) {
  std::vector<std::unique_ptr<SharedBatches>> workers;
  for (int k = 0; k < 4; ++k) workers.push_back(Begin(k, 10));
  for (const auto& worker : workers) ASSERT_TRUE(worker->Next()->has_value());
  workers[0]->Done();
  for (const auto& worker : workers) ASSERT_TRUE(worker->Next()->has_value());
  ASSERT_EQ(*workers[0]->Next(), 8u);
  ASSERT_EQ(*workers[1]->Next(), 9u);
  ASSERT_EQ(*workers[2]->Next(), kNone);
  const JobProgress::Batches kept = BatchesOf(lead());
  EXPECT_EQ(kept.rules, kTen);
  EXPECT_EQ(kept.next, 10u);
  EXPECT_THAT(kept.open, ElementsAre(1, 3, 4, 5, 7, 8, 9)) << "worker 2 found nothing left";

  arena_ = std::move(*InProcessArena::Create(SmallPlan(1)));
  RestoreBatches(lead(), kept);
  EXPECT_EQ(BatchesOf(lead()).open, kept.open);
  const auto only = Begin(0, 12);
  EXPECT_EQ(*only->Next(), 1u);
  EXPECT_EQ(BatchesOf(lead()).open, kept.open) << "not done yet";
  only->Done();
  EXPECT_THAT(BatchesOf(lead()).open, ElementsAre(3, 4, 5, 7, 8, 9));
  for (const std::uint64_t batch : {3, 4, 5, 7, 8, 9, 10, 11}) EXPECT_EQ(*only->Next(), batch);
  EXPECT_EQ(*only->Next(), kNone);
}

// Workers die at any time and come back, and a checkpoint is made meanwhile.
TEST_F(SharedBatchesTest, NothingIsLostWhoeverDies) {
  constexpr std::uint64_t kEnd = 20000;
  std::vector<std::atomic<int>> done(kEnd);
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (int k = 0; k < 3; ++k) {
    threads.emplace_back([&, k] {
      std::mt19937 random(static_cast<unsigned>(k));
      std::unique_ptr<SharedBatches> own = Begin(k, kEnd);
      while (const auto batch = *own->Next()) {
        if (random() % 50 == 0) {
          Die(k);
          own = Begin(k, kEnd);
          continue;
        }
        done[*batch].fetch_add(1);
        own->Done();
      }
      running.fetch_sub(1);
    });
  }
  std::uint64_t looks = 0;
  bool whole = true;
  while (running.load() > 0) {
    const JobProgress::Batches now = BatchesOf(lead());
    const std::set<std::uint64_t> open(now.open.begin(), now.open.end());
    for (std::uint64_t batch = 0; batch < now.next; ++batch) {
      whole &= done[batch].load() > 0 || open.contains(batch);
    }
    ++looks;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(whole) << "a checkpoint had lost a batch";
  EXPECT_GT(looks, 0u);
  for (std::uint64_t batch = 0; batch < kEnd; ++batch) {
    ASSERT_GE(done[batch].load(), 1) << batch;
    ASSERT_LE(done[batch].load(), 3) << batch;
  }
}

// Of gradients that go into one sum the last one says that all are in it.
TEST(OnStepTest, IsCalledWithEachPushThatCounts) {
  StorePlan plan = SmallPlan(1);
  plan.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
  for (const auto& [mode, every] : {std::pair{ModeSetting(Mode::kHogwild), 1},
                                    {ModeSetting(Mode::kBarrier), 1},
                                    {ModeSetting(Mode::kReplicas, 3), 3}}) {
    plan.mode = mode;
    const auto arena = std::move(*InProcessArena::Create(plan));
    const auto store = std::move(*arena->Open(0));
    ASSERT_TRUE(
        store->Initialize([](VarId, std::span<float> out) { std::ranges::fill(out, 0); }).ok());
    ASSERT_TRUE(store->WaitUntilInitialized(Deadline::After(std::chrono::seconds(10))).ok());
    int calls = 0;
    store->OnStep([&] { ++calls; });
    for (int push = 1; push <= 6; ++push) {
      const auto view = store->Pull(PullMode::kView);
      ASSERT_TRUE(view.ok());
      GradientBuffer gradient = store->LendGradient();
      std::ranges::fill(gradient.values(0), 1.F);
      const auto ticket =
          store->Push(gradient, view->stamp(), Deadline::After(std::chrono::seconds(10)));
      ASSERT_TRUE(ticket.ok());
      ASSERT_TRUE(store->Wait(*ticket, Deadline::After(std::chrono::seconds(10))).ok());
      EXPECT_EQ(calls, push / every) << mode.ToString();
    }
  }
}

}  // namespace
}  // namespace passel
