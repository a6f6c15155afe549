// Pushes whose values somebody else updates: what stays with the shard.

#include "store/external_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <deque>

#include "optim/update_formulas.h"
#include "store/membership.h"
#include "store/open_store.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kFloats = 64;

StorePlan PlanFor(Mode mode, OptimizerKind kind) {
  StorePlan plan;
  plan.mode = mode;
  plan.on_device = true;
  plan.optimizer.kind = kind;
  plan.optimizer.learning_rate = 0.5;
  plan.num_workers = 3;
  plan.block_floats = 16;
  VariableInfo v;
  v.name = v.logical = "w";
  v.shape = {static_cast<std::int64_t>(kFloats)};
  auto table = VariableTable::Build({v}, 1);
  EXPECT_TRUE(table.ok()) << table.status().message();
  plan.variables = std::move(*table);
  return plan;
}

// Answers as it was told, and writes down what it was asked.
class PlayedSweep final : public ExternalSweep {
 public:
  bool Current() const override { return current; }
  Result<BlocksSwept> Sweep(const BlockSweep& sweep, Deadline deadline) override {
    orders.push_back(sweep);
    rates.push_back(sweep.scalars->rate);
    limits.push_back(deadline.Remaining());
    if (answers.empty()) return BlocksSwept{};
    Result<BlocksSwept> answer = answers.front();
    if (answers.size() > 1 || !repeat) answers.pop_front();
    return answer;
  }
  bool current = true;
  bool repeat = false;  // the last answer, for ever
  std::deque<Result<BlocksSwept>> answers;
  std::vector<BlockSweep> orders;  // their scalars are gone
  std::vector<float> rates;
  std::vector<std::chrono::nanoseconds> limits;
};

class ExternalSweepTest : public ::testing::Test {
 protected:
  void Start(Mode mode, OptimizerKind kind) {
    auto arena = InProcessArena::Create(PlanFor(mode, kind));
    ASSERT_TRUE(arena.ok()) << arena.status().message();
    arena_ = std::move(*arena);
    auto store = arena_->Open(0);
    ASSERT_TRUE(store.ok()) << store.status().message();
    store_ = std::move(*store);
    ASSERT_TRUE(store_
                    ->Initialize([](VarId, std::span<float> values) {
                      std::fill(values.begin(), values.end(), 3.0f);
                    })
                    .ok());
    ExternalSweep* const sweeps[] = {&sweep_};
    store_->SweepElsewhere(sweeps);
  }
  Result<Ticket> Push(std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    auto view = store_->Pull(PullMode::kView);
    EXPECT_TRUE(view.ok()) << view.status().message();
    return store_->Push(store_->LendGradient(), view->stamp(), Deadline::After(limit));
  }
  // Another worker of this process, that is: alive.
  std::uint64_t ClaimOfLiving() {
    auto other = arena_->Open(1);
    EXPECT_TRUE(other.ok());
    other_ = std::move(*other);
    return Claim{other_->membership()[1].epoch, 1}.Pack();
  }
  const ShardMemory& memory() const { return arena_->shard(0); }

  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<ParameterStore> store_, other_;
  PlayedSweep sweep_;
};

TEST_F(ExternalSweepTest, PushCountsAndLeavesTheValuesAlone) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  ASSERT_TRUE(Push().ok());
  const auto ticket = Push();
  ASSERT_TRUE(ticket.ok());
  const auto outcome = store_->Wait(*ticket, Deadline::After(std::chrono::seconds(5)));
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->applied);
  EXPECT_EQ(store_->global_step(), 2);
  EXPECT_EQ(memory().state->version.load(), 2u);
  EXPECT_EQ(memory().state->optimizer_step.load(), 2);
  EXPECT_EQ(memory().values[0], 3.0f);
  ASSERT_EQ(sweep_.orders.size(), 2u);
  EXPECT_EQ(sweep_.rates[0], 0.5f);
  EXPECT_FALSE(sweep_.orders[0].claims);
  EXPECT_FALSE(sweep_.orders[0].goes_on);
  EXPECT_LT(sweep_.orders[0].first_block, 4u);
  EXPECT_EQ(store_->counters().pushes_ended.load(), 2u);
}

TEST_F(ExternalSweepTest, LockedAndSlotsTakeClaims) {
  Start(Mode::kLocked, OptimizerKind::kSgd);
  ASSERT_TRUE(Push().ok());
  EXPECT_TRUE(sweep_.orders.back().claims);
  Start(Mode::kHogwild, OptimizerKind::kAdam);
  ASSERT_TRUE(Push().ok());
  EXPECT_TRUE(sweep_.orders.back().claims);
  const Claim mine{store_->membership()[0].epoch, 0};
  EXPECT_EQ(sweep_.orders.back().claim, mine.Pack());
}

TEST_F(ExternalSweepTest, BlocksOfALivingHolderAreWaitedForWhenLocked) {
  Start(Mode::kLocked, OptimizerKind::kSgd);
  const std::uint64_t holder = ClaimOfLiving();
  for (std::uint64_t left : {3, 2, 2, 1}) {
    sweep_.answers.push_back(BlocksSwept{left, 0, holder});
  }
  ASSERT_TRUE(Push().ok());
  ASSERT_EQ(sweep_.orders.size(), 5u);
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_TRUE(sweep_.orders[i].goes_on);
    EXPECT_EQ(sweep_.orders[i].former, 0u) << "it lives";
  }
  EXPECT_EQ(store_->counters().overlapped_blocks.load(), 0u);
}

TEST_F(ExternalSweepTest, BlockThatIsHeldTooLongEndsThePushWithTheHolderNamed) {
  Start(Mode::kLocked, OptimizerKind::kSgd);
  sweep_.answers.push_back(BlocksSwept{1, 0, ClaimOfLiving()});
  sweep_.repeat = true;
  const auto pushed = Push(std::chrono::milliseconds(100));
  EXPECT_EQ(pushed.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(pushed.status().message(), HasSubstr("worker/1 holds a block"));
  EXPECT_EQ(store_->counters().half_applied.load(), 1u);
  EXPECT_EQ(memory().state->version.load(), 0u);
  store_->Stop();
  EXPECT_EQ(store_->Pull(PullMode::kView).status().code(), Code::kCancelled);
}

TEST_F(ExternalSweepTest, ClaimOfALifeThatIsOverIsTakenOver) {
  Start(Mode::kLocked, OptimizerKind::kSgd);
  const std::uint64_t dead = Claim{9, 2}.Pack();  // worker/2 never joined
  sweep_.answers.push_back(BlocksSwept{4, 0, dead});
  sweep_.answers.push_back(BlocksSwept{0, 4, 0});
  ASSERT_TRUE(Push().ok());
  ASSERT_EQ(sweep_.orders.size(), 2u);
  EXPECT_EQ(sweep_.orders[1].former, dead);
  EXPECT_EQ(store_->counters().taken_over_blocks.load(), 4u);
}

// The kernel is asked whether it lives, after a while.
TEST_F(ExternalSweepTest, HolderThatDiedUnnoticedIsFoundOut) {
  Start(Mode::kLocked, OptimizerKind::kSgd);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto epoch = Join(memory(), 1, SelfIdentity(), {});
    ::_exit(epoch.ok() && *epoch == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  // The heap of the parent did not see it join: write what it would have left.
  memory().tasks[1].state.store(TaskState{1, Phase::kRunning}.Pack());
  ProcessIdentity gone = SelfIdentity();
  gone.pid = child;
  memory().tasks[1].identity[1] = gone;
  const std::uint64_t claim = Claim{1, 1}.Pack();
  for (int i = 0; i < 2000; ++i) {
    sweep_.answers.push_back(BlocksSwept{1, 0, claim});
  }
  sweep_.answers.push_back(BlocksSwept{0, 1, 0});
  ASSERT_TRUE(Push().ok());
  EXPECT_EQ(StateOf(memory(), 1).phase, Phase::kDead);
  EXPECT_EQ(sweep_.orders.back().former, claim);
}

TEST_F(ExternalSweepTest, HogwildDoesWithoutBlocksThatStayBusyAndCountsThem) {
  Start(Mode::kHogwild, OptimizerKind::kMomentum);
  sweep_.answers.push_back(BlocksSwept{2, 0, ClaimOfLiving()});
  sweep_.repeat = true;
  ASSERT_TRUE(Push().ok());
  EXPECT_EQ(store_->counters().overlapped_blocks.load(), 2u);
  EXPECT_LE(sweep_.orders.size(), 10u);
  EXPECT_EQ(memory().state->version.load(), 1u);
}

// That a push has no time left, since others held its blocks, is no sign of a device that hangs.
TEST_F(ExternalSweepTest, SweepGetsTimeOfItsOwn) {
  Start(Mode::kLocked, OptimizerKind::kSgd);
  sweep_.answers.push_back(BlocksSwept{1, 0, ClaimOfLiving()});
  sweep_.repeat = true;
  EXPECT_EQ(Push(std::chrono::milliseconds(50)).status().code(), Code::kDeadlineExceeded);
  for (const auto limit : sweep_.limits) {
    EXPECT_GT(limit, std::chrono::seconds(4));
    EXPECT_LE(limit, std::chrono::seconds(5));
  }
  sweep_.answers.clear();
  ASSERT_TRUE(Push(std::chrono::hours(1)).ok());
  EXPECT_LE(sweep_.limits.back(), std::chrono::minutes(5));
}

TEST_F(ExternalSweepTest, ErrorOfTheDeviceEndsThePush) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  sweep_.answers.push_back(Unavailable("the GPU is gone"));
  EXPECT_THAT(Push().status().message(), HasSubstr("the GPU is gone"));
  EXPECT_EQ(store_->global_step(), 0);
}

TEST_F(ExternalSweepTest, ArenaThatIsNotTheJobsAnyMoreIsNotPushedTo) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  sweep_.current = false;
  EXPECT_EQ(Push().status().code(), Code::kAborted);
  EXPECT_TRUE(sweep_.orders.empty());
}

// --- A push in two halves: the update is made by the step between them.

TEST_F(ExternalSweepTest, UpdateIsAdditionForPlainSgdWithoutLocksOnly) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  EXPECT_TRUE(store_->UpdateIsAddition());
  Start(Mode::kSsp, OptimizerKind::kSgd);
  EXPECT_TRUE(store_->UpdateIsAddition());
  Start(Mode::kLocked, OptimizerKind::kSgd);
  EXPECT_FALSE(store_->UpdateIsAddition());
  Start(Mode::kHogwild, OptimizerKind::kMomentum);
  EXPECT_FALSE(store_->UpdateIsAddition());
  // Values that the shard updates itself.
  auto here = InProcessArena::Create(PlanFor(Mode::kHogwild, OptimizerKind::kSgd));
  ASSERT_TRUE(here.ok());
  auto store = (*here)->Open(0);
  ASSERT_TRUE(store.ok());
  EXPECT_FALSE((*store)->UpdateIsAddition());
}

TEST_F(ExternalSweepTest, UpdateInTwoHalvesCountsAsAPush) {
  Start(Mode::kSsp, OptimizerKind::kSgd);
  const auto view = store_->Pull(PullMode::kView);
  ASSERT_TRUE(view.ok());
  float rate = 0;
  ASSERT_TRUE(store_->BeginUpdate(&rate).ok());
  EXPECT_EQ(rate, 0.5f);
  const WorkerCounters& count = store_->counters();
  EXPECT_EQ(count.pushes_begun.load(), 1u);
  EXPECT_EQ(count.pushes_ended.load(), 0u);
  EXPECT_EQ(memory().state->version.load(), 0u);
  EXPECT_EQ(store_->global_step(), 0);
  // Somebody else's push comes between: staleness.
  memory().state->version.fetch_add(2);
  const auto ticket = store_->EndUpdate(view->stamp());
  ASSERT_TRUE(ticket.ok()) << ticket.status().message();
  const auto outcome = store_->Wait(*ticket, Deadline::After(std::chrono::seconds(5)));
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->applied);
  EXPECT_EQ(outcome->staleness, 2u);
  EXPECT_EQ(outcome->version, 3u);
  EXPECT_EQ(outcome->global_step, 1);
  EXPECT_EQ(store_->global_step(), 1);
  EXPECT_EQ(count.pushes_ended.load(), 1u);
  EXPECT_EQ(count.local_steps.load(), 1u);
  EXPECT_EQ(count.fused_updates.load(), 1u);
  EXPECT_EQ(count.half_applied.load(), 0u);
  EXPECT_EQ(count.push_latency_ns.maximum.load(), 0u) << "nobody knows it";
  EXPECT_EQ(Arrival::Unpack(memory().tasks[0].clock.load()).at, 1u);
  EXPECT_TRUE(sweep_.orders.empty()) << "no push beside it";
  EXPECT_TRUE(Push().ok());
  EXPECT_EQ(store_->global_step(), 2);
  EXPECT_EQ(count.fused_updates.load(), 1u);
}

TEST_F(ExternalSweepTest, UpdateThatIsGivenUpIsHalfAppliedAndNoStep) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  float rate = 0;
  ASSERT_TRUE(store_->BeginUpdate(&rate).ok());
  store_->GiveUpUpdate();
  const WorkerCounters& count = store_->counters();
  EXPECT_EQ(count.half_applied.load(), 1u);
  EXPECT_EQ(count.pushes_begun.load(), count.pushes_ended.load());
  EXPECT_EQ(count.local_steps.load(), 0u);
  EXPECT_EQ(count.fused_updates.load(), 0u);
  EXPECT_EQ(memory().state->version.load(), 0u);
  EXPECT_EQ(store_->global_step(), 0);
  EXPECT_TRUE(Push().ok());
}

// Fenced off between the halves: the values have it, so its version counts, and no step does.
TEST_F(ExternalSweepTest, UpdateOfAWorkerThatWasEvictedMeanwhileEndsItsLife) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  const auto view = store_->Pull(PullMode::kView);
  float rate = 0;
  ASSERT_TRUE(store_->BeginUpdate(&rate).ok());
  ASSERT_TRUE(Evict(memory(), 0, store_->membership()[0].epoch));
  EXPECT_EQ(store_->EndUpdate(view->stamp()).status().code(), Code::kAborted);
  EXPECT_EQ(memory().state->version.load(), 1u);
  EXPECT_EQ(store_->global_step(), 0);
  EXPECT_EQ(store_->counters().local_steps.load(), 0u);
  EXPECT_EQ(store_->counters().pushes_begun.load(), store_->counters().pushes_ended.load());
  EXPECT_EQ(store_->BeginUpdate(&rate).code(), Code::kAborted);
  EXPECT_EQ(store_->counters().pushes_begun.load(), 1u) << "nothing was begun";
}

// And the job went over to another mode: its versions are not for us to count.
TEST_F(ExternalSweepTest, UpdateOfAWorkerThatIsAModeBehindIsNoVersion) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  const auto view = store_->Pull(PullMode::kView);
  float rate = 0;
  ASSERT_TRUE(store_->BeginUpdate(&rate).ok());
  ASSERT_TRUE(Evict(memory(), 0, store_->membership()[0].epoch));
  memory().state->mode.current.store(ModeWord{1, 0, 0, {Mode::kBarrier}}.Pack());
  EXPECT_EQ(store_->EndUpdate(view->stamp()).status().code(), Code::kAborted);
  EXPECT_EQ(memory().state->version.load(), 0u);
  EXPECT_EQ(store_->global_step(), 0);
}

TEST_F(ExternalSweepTest, UpdateOfADeadWorkerCountsAsHalfApplied) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  float rate = 0;
  ASSERT_TRUE(store_->BeginUpdate(&rate).ok());
  ASSERT_TRUE(MarkDead(memory(), 0, store_->membership()[0].epoch));
  EXPECT_EQ(memory().tasks[0].counters.half_applied.load(), 1u);
  EXPECT_EQ(store_->global_step(), 0);
}

TEST_F(ExternalSweepTest, UpdateOfAnArenaThatIsNotTheJobsAnyMoreIsNotBegun) {
  Start(Mode::kHogwild, OptimizerKind::kSgd);
  sweep_.current = false;
  float rate = 0;
  EXPECT_EQ(store_->BeginUpdate(&rate).code(), Code::kAborted);
  EXPECT_EQ(store_->counters().pushes_begun.load(), 0u);
}

TEST_F(ExternalSweepTest, ModesWithRoundsAreRefusedInOneSentence) {
  for (const Mode mode : {Mode::kBarrier, Mode::kReplicas}) {
    EXPECT_THAT(PlanFor(mode, OptimizerKind::kSgd).Validate().message(),
                HasSubstr("has rounds, which parameters in GPU memory (--arena device)"));
  }
  StorePlan plan = PlanFor(Mode::kSsp, OptimizerKind::kSgd);
  EXPECT_TRUE(plan.Validate().ok());
  plan.schedule.push_back({10, {Mode::kBarrier}});
  EXPECT_THAT(plan.Validate().message(), HasSubstr("--mode_schedule: mode barrier has rounds"));
  StorePlan host = plan;
  host.on_device = false;
  EXPECT_TRUE(host.Validate().ok());
  EXPECT_NE(host.Hash(), plan.Hash());
}

}  // namespace
}  // namespace passel
