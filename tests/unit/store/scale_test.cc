#include "store/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "store/membership.h"
#include "store/open_store.h"
#include "unit/store/small_plan.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

StorePlan PlanWithSpare(int workers, int spare, ModeSetting mode = Mode::kHogwild) {
  StorePlan plan = SmallPlan(workers);
  plan.spare_workers = spare;
  plan.mode = mode.For(workers);
  plan.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
  return plan;
}

class ScaleWishTest : public ::testing::Test {
 protected:
  ScaleWishTest() : arena_(std::move(*InProcessArena::Create(PlanWithSpare(4, 2)))) {}
  const ShardMemory& lead() const { return arena_->shard(0); }
  std::unique_ptr<InProcessArena> arena_;
};

TEST_F(ScaleWishTest, OneAfterTheOther) {
  EXPECT_EQ(WantedWorkers(lead()), 2) << "those it began with";
  ASSERT_EQ(*WishForWorkers(lead(), 4), 1u);
  EXPECT_EQ(WantedWorkers(lead()), 4);
  EXPECT_EQ(*WishForWorkers(lead(), 4), 1u) << "the same wish stands";
  const Status other = WishForWorkers(lead(), 3).status();
  EXPECT_EQ(other.code(), Code::kAlreadyExists);
  EXPECT_THAT(other.message(), HasSubstr("changing to 4 workers"));
  EndScaling(lead(), WishedScale(lead()));
  EXPECT_EQ(*WishForWorkers(lead(), 1), 2u);
}

TEST_F(ScaleWishTest, NumbersThatCannotBeAreRefused) {
  for (const std::int64_t workers :
       {std::int64_t{-1}, std::int64_t{0}, std::int64_t{5}, std::int64_t{1} << 40}) {
    const Status status = WishForWorkers(lead(), workers).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << workers;
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(workers)));
  }
  EXPECT_EQ(WishedScale(lead()).number, 0u);
}

TEST_F(ScaleWishTest, AJobThatEndsIsNotScaled) {
  lead().tasks[0].state.store(TaskState{1, Phase::kDone}.Pack());
  EXPECT_EQ(WishForWorkers(lead(), 3).status().code(), Code::kFailedPrecondition);
  lead().tasks[0].state.store(TaskState{1, Phase::kRunning}.Pack());
  lead().state->stop.store(1);
  EXPECT_EQ(WishForWorkers(lead(), 3).status().code(), Code::kFailedPrecondition);
}

TEST_F(ScaleWishTest, TheLastPlacesAreSpareAndAnyoneMayTakeThem) {
  EXPECT_EQ(StateOf(lead(), 1).phase, Phase::kExpected);
  EXPECT_EQ(StateOf(lead(), 2), (TaskState{0, Phase::kSpare}));
  EXPECT_FALSE(MayCome(Phase::kSpare));
  EXPECT_FALSE(GiveUpExpecting(lead(), 2)) << "nobody expects it";
  const auto epoch = Join(lead(), 3, SelfIdentity());
  ASSERT_TRUE(epoch.ok()) << epoch.status().message();
  EXPECT_EQ(StateOf(lead(), 3), (TaskState{1, Phase::kRunning}));
}

TEST_F(ScaleWishTest, TheJobIsDoneWhenThoseItBeganWithAre) {
  for (const int k : {0, 1}) lead().tasks[k].state.store(TaskState{1, Phase::kDone}.Pack());
  EXPECT_TRUE(AllWorkersDone(lead()));
  lead().tasks[2].state.store(TaskState{1, Phase::kRunning}.Pack());
  EXPECT_FALSE(AllWorkersDone(lead()));
  lead().tasks[2].state.store(TaskState{1, Phase::kLeft}.Pack());
  EXPECT_TRUE(AllWorkersDone(lead()));
  lead().tasks[1].state.store(TaskState{1, Phase::kLeft}.Pack());
  EXPECT_FALSE(AllWorkersDone(lead()));
}

TEST(ScalePlanTest, MoreReplicasThanPlacesNeedAFixedNumberOfWorkers) {
  EXPECT_TRUE(PlanWithSpare(4, 2, {Mode::kReplicas, 4}).Validate().ok());
  const Status status = PlanWithSpare(4, 2, {Mode::kReplicas, 5}).Validate();
  EXPECT_THAT(status.message(), HasSubstr("at most the 4 workers of --max_workers"));
  EXPECT_TRUE(PlanWithSpare(4, 0, {Mode::kReplicas, 5}).Validate().ok());
  EXPECT_FALSE(PlanWithSpare(4, 4).Validate().ok());
  EXPECT_FALSE(PlanWithSpare(4, -1).Validate().ok());
}

// A round has one gradient of each worker that is in, and its update is their mean.
TEST(ScaleRoundsTest, RoundsFollowWhoIsIn) {
  for (const Mode mode : {Mode::kBarrier, Mode::kReplicas}) {
    const std::unique_ptr<InProcessArena> arena =
        std::move(*InProcessArena::Create(PlanWithSpare(3, 2, mode)));
    const Deadline soon = Deadline::After(std::chrono::seconds(20));
    std::vector<std::unique_ptr<ParameterStore>> in;
    const auto join = [&](int worker) { in.push_back(std::move(*arena->Open(worker))); };
    join(0);
    ASSERT_TRUE(
        in[0]
            ->Initialize([](VarId, std::span<float> values) { std::ranges::fill(values, 0.F); })
            .ok());
    std::int64_t rounds = 0;
    // Returns how far one value moved: with a rate of 1 the mean of all gradients, 1 + worker.
    const auto round = [&] {
      const float before = arena->shard(0).values[0];
      std::vector<Ticket> tickets;
      for (auto& store : in) {
        EXPECT_TRUE(store->WaitUntilInitialized(soon).ok());
        const ParamView view = *store->Pull(PullMode::kView);
        const GradientBuffer gradient = store->LendGradient();
        std::ranges::fill(gradient.values(0), static_cast<float>(1 + store->worker()));
        tickets.push_back(*store->Push(gradient, view.stamp(), soon));
      }
      for (std::size_t i = 0; i < in.size(); ++i) {
        EXPECT_TRUE((*in[i]->Wait(tickets[i], soon)).applied);
      }
      EXPECT_EQ(in[0]->global_step(), ++rounds);
      return before - arena->shard(0).values[0];
    };
    EXPECT_FLOAT_EQ(round(), 1) << "nobody waits for spare places";
    join(2);
    EXPECT_FLOAT_EQ(round(), 2) << "(1 + 3) / 2";
    join(1);
    EXPECT_FLOAT_EQ(round(), 2) << "(1 + 3 + 2) / 3";
    ASSERT_TRUE(in[1]->LeaveForNow().ok());
    in.erase(in.begin() + 1);
    EXPECT_FLOAT_EQ(round(), 1.5) << "(1 + 2) / 2";
  }
}

}  // namespace
}  // namespace passel
