// Training with a StepEngine: the gradients are those that the model itself computes, each batch is
// pushed once and in order, and no slot is used twice at a time.

#include "unit/train/gradient_source_case.h"

#include <gmock/gmock.h>

#include <numeric>

namespace passel {
namespace {

TEST_F(GradientSourceTest, HooksAreNotShownWhatAnEngineComputed) {
  struct Refuser final : Hook {
    Status BeforePush(HookContext&, const GradientBuffer&) override {
      return Internal("its gradients may be in the memory of a GPU");
    }
  } refuser;
  Open();
  callbacks_.hooks = {&refuser};
  EXPECT_TRUE(Run(true).ok());
  Open();
  EXPECT_EQ(Run(false).status().code(), Code::kInternal);
}

TEST_F(GradientSourceTest, TrainsBitForBitAsWithoutAnEngine) {
  for (const Mode mode : {Mode::kHogwild, Mode::kLocked, Mode::kBarrier}) {
    plan_.mode = mode;
    Open();
    ASSERT_TRUE(Run(false).ok());
    const std::vector<float> expected = Values();
    Open();
    const Result<WorkerResult> result = Run(true);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(Values(), expected) << ModeName(mode);
    EXPECT_EQ(engine_->finished, Batches(40));
    EXPECT_EQ(engine_->most_under_way, 1u);
  }
}

TEST_F(GradientSourceTest, EachStepAheadMakesEveryGradientOneUpdateStaler) {
  for (const int ahead : {1, 2}) {
    Open();
    use_.steps_ahead = ahead;
    std::vector<std::uint64_t> staleness;
    hook_.on_step = [&](const StepReport& s) { staleness.push_back(s.outcome.staleness); };
    const Result<WorkerResult> result = Run(true);
    ASSERT_TRUE(result.ok()) << result.status().message();
    ASSERT_EQ(staleness.size(), 40u);
    for (std::size_t i = 0; i < staleness.size(); ++i) {
      EXPECT_EQ(staleness[i], std::min<std::size_t>(i, static_cast<std::size_t>(ahead))) << i;
    }
    EXPECT_EQ(engine_->most_under_way, static_cast<std::size_t>(ahead) + 1);
    EXPECT_EQ(engine_->used_slots, (1U << kSlots) - 1) << "each slot of the store in turn";
    // Whole batches in their order, and none but those that were begun ahead is lost at the end.
    EXPECT_EQ(engine_->finished, Batches(engine_->finished.size()));
    EXPECT_EQ(engine_->finished.size(), 40u + static_cast<std::size_t>(ahead));
  }
}

TEST_F(GradientSourceTest, WhatWasBegunAndNotPushedIsTheNextLifesFirstBatch) {
  for (const int ahead : {1, 2}) {
    Open();
    use_.steps_ahead = ahead;
    int steps = 0;
    hook_.on_step = [&](const StepReport&) { ++steps; };
    callbacks_.check = [&](bool* leave) {
      *leave = steps == 13;
      return Status();
    };
    ASSERT_TRUE(Run(true).ok());
    ASSERT_EQ(steps, 13);
    Reopen();
    ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(1))).ok());
    MakeEngine();
    use_.steps_ahead = ahead;
    callbacks_.check = {};
    ASSERT_TRUE(Run(true).ok());
    const auto all = Batches(40);
    ASSERT_GE(engine_->finished.size(), 27u);
    for (std::size_t i = 0; i < 27; ++i) EXPECT_EQ(engine_->finished[i], all[13 + i]) << i;
  }
}

TEST_F(GradientSourceTest, ChangeOfModeComputesTheVoidBatchAgain) {
  for (const Mode to : {Mode::kBarrier, Mode::kLocked, Mode::kReplicas}) {
    for (const int ahead : {1, 2}) {
      plan_.schedule = {{20, {to, to == Mode::kReplicas ? 1 : 0}}};
      Open();
      use_.steps_ahead = ahead;
      std::vector<std::int64_t> global;
      hook_.on_step = [&](const StepReport& s) { global.push_back(s.outcome.global_step); };
      const Result<WorkerResult> result = Run(true);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(store_->mode_changes(), 1u);
      std::vector<std::int64_t> expected(40);
      std::iota(expected.begin(), expected.end(), 1);
      EXPECT_EQ(global, expected) << ModeName(to);
      // Those from 20 on were begun in the old mode; their gradients were not pushed.
      auto batches = Batches(42);
      const auto begun = batches.begin() + 20;
      const std::vector<std::vector<std::uint32_t>> again(begun, begun + ahead);
      batches.insert(batches.begin() + 20, again.begin(), again.end());
      batches.resize(engine_->finished.size());
      EXPECT_EQ(engine_->finished, batches) << ModeName(to);
    }
  }
}

TEST_F(GradientSourceTest, SeveralGradientsPerRoundGoThroughTheScratch) {
  plan_.mode = Mode::kReplicas;
  plan_.mode.number = 3;
  Open();
  ASSERT_TRUE(Run(false).ok());
  const std::vector<float> expected = Values();
  Open();
  const Result<WorkerResult> result = Run(true);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(Values(), expected);
  EXPECT_EQ(engine_->used_slots & (1U << kSlots), 1U << kSlots);
}

TEST_F(GradientSourceTest, GradientThatTheEngineFoundNotFiniteIsNotPushed) {
  engine_->nan_at = 5;
  const Result<WorkerResult> result = Run(true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kDiverged);
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("the gradient of hid_w"));
  EXPECT_EQ(store_->global_step(), 5);
}

TEST_F(GradientSourceTest, SkippedGradientsCount) {
  engine_->nan_at = 5;
  options_.on_nan = OnNan::kSkip;
  const Result<WorkerResult> result = Run(true);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->global_step, 40);
  EXPECT_EQ(arena_->shard(0).tasks[0].counters.skipped.load(), 1u);
}

TEST_F(GradientSourceTest, ErrorOfTheDeviceEndsTheWorkerWithIt) {
  for (const int ahead : {0, 1, 2}) {
    Open();
    use_.steps_ahead = ahead;
    engine_->fail_at = 7;
    const Result<WorkerResult> result = Run(true);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().message(), "the fake device fell off its bus");
    EXPECT_EQ(store_->global_step(), 7);
  }
}

TEST_F(GradientSourceTest, RefusedStartEndsTheWorkerWithIt) {
  engine_->start_status = Internal("no launch today");
  const Result<WorkerResult> result = Run(true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "no launch today");
}

// The device hangs: whoever asks the worker to leave is heard within a turn of the wait.
TEST_F(GradientSourceTest, StuckDeviceDoesNotKeepTheWorkerFromLeaving) {
  engine_->stuck = true;
  int looks = 0;
  callbacks_.check = [&](bool* leave) {
    *leave = ++looks > 1;
    if (looks > 2) engine_->stuck = false;  // for the drain at the end
    return Status();
  };
  const Result<WorkerResult> result = Run(true);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kAsked);
  EXPECT_EQ(result->global_step, 0);
}

}  // namespace
}  // namespace passel
