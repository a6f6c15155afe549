// Training with a StepEngine that makes the update itself: the values and the counts are those of
// pushes.

#include <numeric>

#include "optim/update_formulas.h"
#include "store/external_sweep.h"
#include "unit/train/gradient_source_case.h"

namespace passel {
namespace {

// Updates the shard's values, as an arena elsewhere would.
class SweepHere final : public ExternalSweep {
 public:
  explicit SweepHere(const ShardMemory& memory) : memory_(memory) {}
  bool Current() const override { return true; }
  Result<BlocksSwept> Sweep(const BlockSweep& sweep, Deadline) override {
    ++pushes;
    const float* const gradient = memory_.Gradient(0, sweep.gradient_slot);
    for (std::size_t i = 0; i < memory_.floats; ++i) {
      memory_.values[i] -= sweep.scalars->rate * gradient[i];
    }
    return BlocksSwept{};
  }
  int pushes = 0;

 private:
  const ShardMemory memory_;
};

// Plain SGD on values that are elsewhere, and an engine that can update them.
class UpdateInStepTest : public GradientSourceTest {
 protected:
  void SetUp() override {
    GradientSourceTest::SetUp();
    plan_.on_device = true;
    plan_.optimizer = {};
    plan_.optimizer.kind = OptimizerKind::kSgd;
    plan_.optimizer.learning_rate = 0.05;
    OpenElsewhere();
  }
  void OpenElsewhere() {
    Open();
    UseSweep();
  }
  void UseSweep() {
    sweep_.emplace(arena_->shard(0));
    ExternalSweep* const sweeps[] = {&*sweep_};
    store_->SweepElsewhere(sweeps);
    engine_->updates = true;
    use_.update_in_step = true;
  }
  const WorkerCounters& counters() const { return arena_->shard(0).tasks[0].counters; }
  // Each step was applied once, and counted once.
  void ExpectCounted(std::uint64_t steps, std::uint64_t fused) {
    EXPECT_EQ(engine_->updated, fused);
    EXPECT_EQ(static_cast<std::uint64_t>(sweep_->pushes), steps - fused);
    EXPECT_EQ(counters().fused_updates.load(), fused);
    EXPECT_EQ(counters().local_steps.load(), steps);
    EXPECT_EQ(counters().pushes_begun.load(), counters().pushes_ended.load());
    EXPECT_EQ(counters().half_applied.load(), 0u);
    EXPECT_EQ(arena_->shard(0).state->version.load(), steps);
    EXPECT_EQ(arena_->shard(0).state->optimizer_step.load(), static_cast<std::int64_t>(steps));
    EXPECT_EQ(store_->global_step(), static_cast<std::int64_t>(steps));
  }

  std::optional<SweepHere> sweep_;
};

TEST_F(UpdateInStepTest, GivesTheValuesOfPushes) {
  for (const Mode mode : {Mode::kHogwild, Mode::kSsp}) {
    plan_.mode = mode;
    plan_.mode.number = mode == Mode::kSsp ? 2 : 0;
    OpenElsewhere();
    use_.update_in_step = false;
    ASSERT_TRUE(Run(true).ok());
    ExpectCounted(40, 0);
    const std::vector<float> expected = Values();
    OpenElsewhere();
    std::vector<std::int64_t> global;
    hook_.on_step = [&](const StepReport& s) {
      global.push_back(s.outcome.global_step);
      EXPECT_EQ(s.outcome.staleness, 0u);
      EXPECT_EQ(s.local_step, s.outcome.global_step);
    };
    const Result<WorkerResult> result = Run(true);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->local_steps, 40);
    EXPECT_EQ(Values(), expected) << ModeName(mode);
    EXPECT_EQ(engine_->finished, Batches(40));
    ExpectCounted(40, 40);
    std::vector<std::int64_t> each(40);
    std::iota(each.begin(), each.end(), 1);
    EXPECT_EQ(global, each);
    hook_ = {};
  }
}

TEST_F(UpdateInStepTest, FollowsTheModeFromStepToStep) {
  plan_.schedule = {{10, {Mode::kLocked}}, {20, {Mode::kSsp, 2}}, {30, {Mode::kLocked}}};
  OpenElsewhere();
  use_.update_in_step = false;
  ASSERT_TRUE(Run(true).ok());
  const std::vector<float> expected = Values();
  OpenElsewhere();
  std::vector<std::uint64_t> fused;
  hook_.on_step = [&](const StepReport&) { fused.push_back(counters().fused_updates.load()); };
  const Result<WorkerResult> result = Run(true);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(store_->mode_changes(), 3u);
  EXPECT_EQ(Values(), expected);
  EXPECT_EQ(engine_->finished, Batches(40)) << "no batch twice, none left out";
  ExpectCounted(40, 20);
  ASSERT_EQ(fused.size(), 40u);
  EXPECT_EQ(fused[9], 10u);
  EXPECT_EQ(fused[19], 10u);
  EXPECT_EQ(fused[29], 20u);
}

TEST_F(UpdateInStepTest, IsLeftToPushesWhereItCannotBeRight) {
  const auto run = [&](const char* why) {
    const Result<WorkerResult> result = Run(true);
    ASSERT_TRUE(result.ok()) << why << ": " << result.status().message();
    EXPECT_EQ(engine_->updated, 0u) << why;
    EXPECT_EQ(sweep_->pushes, 40) << why;
    EXPECT_EQ(counters().fused_updates.load(), 0u) << why;
    OpenElsewhere();
  };
  use_.steps_ahead = 1;
  run("a step ahead");
  options_.on_nan = OnNan::kSkip;
  run("somebody looks at each gradient");
  options_.on_nan = OnNan::kStop;
  options_.slow_workers = {{0, std::chrono::milliseconds(1)}};
  run("a straggler's gradients are to be late");
  options_.slow_workers.clear();
  engine_->updates = false;
  run("the engine cannot");
  use_.update_in_step = false;
  run("nobody asked for it");
}

TEST_F(UpdateInStepTest, WhatIsNotFiniteEndsTheWorkerWithItsVariable) {
  engine_->nan_at = 5;
  const Result<WorkerResult> result = Run(true);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kDiverged);
  EXPECT_EQ(result.status().message(),
            "worker/0: the gradient of sm_w is not finite at local step 6 (global step 5): 3 "
            "elements were left out of that update: lower --learning_rate (or use --on_nan skip, "
            "which looks before it pushes)");
  EXPECT_EQ(store_->global_step(), 5);
  EXPECT_EQ(counters().local_steps.load(), 5u);
  EXPECT_EQ(counters().half_applied.load(), 1u);
  EXPECT_EQ(counters().pushes_begun.load(), counters().pushes_ended.load());
}

TEST_F(UpdateInStepTest, ErrorsOfTheDeviceLeaveOneUpdateHalfApplied) {
  engine_->fail_at = 7;
  EXPECT_EQ(Run(true).status().message(), "the fake device fell off its bus");
  EXPECT_EQ(store_->global_step(), 7);
  EXPECT_EQ(counters().half_applied.load(), 1u);
  EXPECT_EQ(counters().pushes_begun.load(), counters().pushes_ended.load());
  OpenElsewhere();
  engine_->start_status = Internal("no launch today");
  EXPECT_EQ(Run(true).status().message(), "no launch today");
  EXPECT_EQ(store_->global_step(), 0);
  EXPECT_EQ(counters().half_applied.load(), 1u);
}

// Asked to leave, or stopped, while the device computes: what it adds meanwhile is counted, and its
// batch is not drawn again.
TEST_F(UpdateInStepTest, StepUnderWayIsCountedWhenTheWorkerLeaves) {
  for (const bool stop : {false, true}) {
    OpenElsewhere();
    int looks = 0;
    callbacks_.check = [&](bool* leave) {
      if (looks == 0 && engine_->finished.size() == 12) {
        engine_->stuck = true;  // from the next step on, until somebody has lost patience
        ++looks;
      } else if (looks > 0) {
        if (stop) store_->Stop();
        *leave = true;
        engine_->stuck = false;
      }
      return Status();
    };
    const Result<WorkerResult> result = Run(true);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->reason, stop ? LeaveReason::kStopped : LeaveReason::kAsked);
    EXPECT_EQ(result->global_step, 13);
    EXPECT_EQ(result->local_steps, 13);
    ExpectCounted(13, 13);
    callbacks_.check = {};
    if (stop) continue;
    Reopen();
    ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(1))).ok());
    MakeEngine();
    UseSweep();
    ASSERT_TRUE(Run(true).ok());
    const auto all = Batches(40);
    ASSERT_EQ(engine_->finished.size(), 27u);
    for (std::size_t i = 0; i < 27; ++i) EXPECT_EQ(engine_->finished[i], all[13 + i]) << i;
  }
}

}  // namespace
}  // namespace passel
