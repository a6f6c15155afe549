#include "train/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "support/function_hook.h"
#include "support/small_worker.h"

namespace passel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What the log gets on standard error while `run` runs.
template <typename Run>
std::string Logged(const Run& run) {
  ::testing::internal::CaptureStderr();
  run();
  return ::testing::internal::GetCapturedStderr();
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// Each step takes half a second of a clock that stands still otherwise.
class HooksTest : public test::SmallWorkerTest {
 protected:
  void SetUp() override {
    SmallWorkerTest::SetUp();
    Open(0.1F);
    pace_.on_step = [this](const StepReport&) { clock_.AdvanceNs(500'000'000); };
  }

  Result<WorkerResult> RunWith(Hook& hook) { return Run({.hooks = {&pace_, &hook}}); }
  // The next life of this worker, up to so many global steps.
  Result<WorkerResult> GoOn(Hook& hook, std::int64_t train_steps) {
    Reopen();
    EXPECT_TRUE(store_->WaitUntilInitialized(Deadline::After(seconds(5))).ok());
    options_.train_steps = train_steps;
    return RunWith(hook);
  }
  // One update that changes nothing.
  void Push() {
    const ParamView view = store_->Pull(PullMode::kView).value();
    const GradientBuffer gradient = store_->LendGradient();
    for (VarId id = 0; id < store_->variables().size(); ++id) {
      std::ranges::fill(gradient.values(id), 0.F);
    }
    const Deadline soon = Deadline::After(seconds(5));
    const Result<Ticket> ticket = store_->Push(gradient, view.stamp(), soon);
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(store_->Wait(*ticket, soon).ok());
  }
  HookContext Context(HookContext::PauseFunction pause = {}) {
    return HookContext(*store_, "worker/0", true, std::move(pause));
  }
  static StepReport At(std::int64_t step, double loss = 1) {
    StepReport report;
    report.local_step = report.outcome.global_step = step;
    report.loss = loss;
    return report;
  }
  LineFunction Lines() {
    return [this](std::string_view line) { lines_.emplace_back(line); };
  }

  ScopedFakeClock clock_;
  test::FunctionHook pace_;
  std::vector<std::string> lines_;
};

// --- StopAtStep ----------------------------------------------------------------------------------

TEST_F(HooksTest, StopAtStepTakesExactlyOneOfTheTwo) {
  EXPECT_EQ(MakeStopAtStep({}, {}).status().message(),
            "One of num_steps or last_step must be specified.");
  EXPECT_EQ(MakeStopAtStep(1, 1).status().message(),
            "Only one of num_steps or last_step can be specified.");
  EXPECT_THAT(MakeStopAtStep(-3, {}).status().message(), HasSubstr("-3"));
  EXPECT_THAT(MakeStopAtStep({}, -3).status().message(), HasSubstr("-3"));
}

TEST_F(HooksTest, StopAtStepLeavesAtTheLastStep) {
  const auto hook = MakeStopAtStep({}, 7).value();
  const Result<WorkerResult> result = RunWith(*hook);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, LeaveReason::kHook);
  EXPECT_EQ(store_->global_step(), 7);
}

TEST_F(HooksTest, StopAtStepCountsFromTheStepOfTheFirstSession) {
  const auto before = MakeStopAtStep({}, 4).value(), hook = MakeStopAtStep(5, {}).value();
  ASSERT_TRUE(RunWith(*before).ok());
  ASSERT_TRUE(GoOn(*hook, 8).ok());
  // A session that follows a lost one: nine is still the end.
  ASSERT_TRUE(GoOn(*hook, 100).ok());
  EXPECT_EQ(store_->global_step(), 9);
}

TEST_F(HooksTest, StopAtStepMakesNoStepWhereNoneIsLeft) {
  const auto before = MakeStopAtStep({}, 7).value(), hook = MakeStopAtStep({}, 7).value();
  ASSERT_TRUE(RunWith(*before).ok());
  EXPECT_THAT(Logged([&] { EXPECT_EQ(GoOn(*hook, 100)->reason, LeaveReason::kHook); }),
              HasSubstr("The global step is 7 already, and training is to stop at 7"));
  EXPECT_EQ(store_->global_step(), 7);
}

// --- StepCounter ---------------------------------------------------------------------------------

TEST_F(HooksTest, StepCounterTellsTheRateEveryHundredStepsButNotAtTheFirst) {
  options_.train_steps = 250;
  std::vector<std::int64_t> steps;
  StepCounterOptions options{.write = Lines()};
  options.on_rate = [&](std::int64_t step, double rate) {
    steps.push_back(step);
    EXPECT_DOUBLE_EQ(rate, 2);
  };
  const auto hook = MakeStepCounter(options).value();
  ASSERT_TRUE(RunWith(*hook).ok());
  EXPECT_THAT(lines_, ElementsAre("global_step/sec: 2", "global_step/sec: 2"));
  EXPECT_THAT(steps, ElementsAre(101, 201));
}

TEST_F(HooksTest, StepCounterCountsTheStepsOfOthersToo) {
  const auto hook = MakeStepCounter({.every = {.time = seconds(2)}, .write = Lines()}).value();
  HookContext context = Context();
  for (const std::int64_t step : {10, 500, 1010}) {
    context.Made(At(step), {});
    ASSERT_TRUE(hook->AfterRun(context).ok());
    clock_.AdvanceNs(1'000'000'000);
  }
  EXPECT_THAT(lines_, ElementsAre("global_step/sec: 500"));
}

TEST_F(HooksTest, StepCounterWarnsOfAStepThatDoesNotRise) {
  const auto hook = MakeStepCounter({.write = Lines()}).value();
  HookContext context = Context();
  const auto run = [&](int runs, int gradients) {
    return Logged([&] {
      StepReport report = At(3);
      report.outcome.gradients = gradients;
      for (int i = 0; i < runs; ++i) {
        context.Made(report, {});
        ASSERT_TRUE(hook->AfterRun(context).ok());
      }
    });
  };
  EXPECT_EQ(run(20, 1), "") << "of which the first is new";
  EXPECT_THAT(run(1, 1), HasSubstr("It seems that global step has not been increased. Current "
                                   "value (could be stable): 3 vs previous value: 3."));
  EXPECT_EQ(run(19, 1), "");
  EXPECT_EQ(Count(run(1, 1), "It seems"), 1) << "again after as many";
  EXPECT_EQ(run(100, 0), "") << "gradients that wait for others to be pushed with";
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(HooksTest, StepCounterRefusesTwoIntervals) {
  EXPECT_FALSE(MakeStepCounter({.every = {.steps = 1, .time = seconds(1)}}).ok());
}

// --- Logging -------------------------------------------------------------------------------------

LoggedValue Tag(const std::string& tag) {
  return {tag, [](const HookContext& context) {
            return 0.25 * static_cast<double>(context.step().local_step);
          }};
}

TEST_F(HooksTest, LoggingTellsAtTheFirstStepOfAnIntervalAndHowLongItWas) {
  options_.train_steps = 6;
  const auto hook =
      MakeLogging({.values = {Tag("b"), Tag("a")}, .every = {.steps = 2}, .write = Lines()})
          .value();
  ASSERT_TRUE(RunWith(*hook).ok());
  EXPECT_THAT(lines_, ElementsAre("b = 0.25, a = 0.25", "b = 0.75, a = 0.75 (1.000 sec)",
                                  "b = 1.25, a = 1.25 (1.000 sec)"));
}

TEST_F(HooksTest, LoggingGoesByTheClockOrOnlyByTheEnd) {
  options_.train_steps = 6;
  const auto timed = MakeLogging({.values = {Tag("a")},
                                  .every = {.time = milliseconds(1500)},
                                  .at_end = true,
                                  .write = Lines()})
                         .value();
  ASSERT_TRUE(RunWith(*timed).ok());
  EXPECT_THAT(lines_, ElementsAre("a = 0.25", "a = 1 (1.500 sec)", "a = 1.5"));
  lines_.clear();
  Open(0.1F);
  const auto at_end = MakeLogging({.values = {Tag("a")}, .at_end = true, .write = Lines()}).value();
  ASSERT_TRUE(RunWith(*at_end).ok());
  EXPECT_THAT(lines_, ElementsAre("a = 1.5"));
}

TEST_F(HooksTest, LoggingKeepsTheDigitsOfALargeStep) {
  const auto hook = MakeLogging({.values = {{"step", [](const HookContext&) { return 12345678; }}},
                                 .every = {.steps = 1},
                                 .write = Lines()})
                        .value();
  HookContext context = Context();
  ASSERT_TRUE(hook->AfterRun(context).ok());
  EXPECT_THAT(lines_, ElementsAre("step = 12345678"));
}

TEST_F(HooksTest, LoggingRefusesWhatItsProgramRefuses) {
  constexpr const char* kOne =
      "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided.";
  EXPECT_EQ(MakeLogging({.values = {Tag("a")}}).status().message(), kOne);
  EXPECT_EQ(MakeLogging({.every = {.steps = 1, .time = seconds(1)}}).status().message(), kOne);
  EXPECT_EQ(
      MakeLogging({.every = {.steps = 1, .time = seconds(1)}, .at_end = true}).status().message(),
      kOne);
  EXPECT_EQ(MakeLogging({.every = {.steps = -2}}).status().message(), "invalid every_n_iter=-2.");
}

// --- NanGuard ------------------------------------------------------------------------------------

TEST_F(HooksTest, NanGuardFailsOrStopsAtALossThatIsNoNumber) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const bool fail : {true, false}) {
    const auto hook = MakeNanGuard(fail);
    HookContext context = Context();
    context.Made(At(4, 1e30), {});
    ASSERT_TRUE(hook->AfterRun(context).ok());
    EXPECT_FALSE(context.stop_requested());
    context.Made(At(5, kNan), {});
    Status status;
    EXPECT_THAT(Logged([&] { status = hook->AfterRun(context); }),
                HasSubstr("Model diverged with loss = NaN."));
    EXPECT_EQ(context.stop_requested(), !fail);
    if (!fail) {
      EXPECT_TRUE(status.ok());
      continue;
    }
    EXPECT_EQ(status.code(), Code::kDiverged);
    EXPECT_THAT(status.message(), HasSubstr("NaN loss during training"));
    EXPECT_THAT(status.message(), HasSubstr("global step 5"));
  }
}

TEST_F(HooksTest, NanGuardStopsAWorkerThatWouldSkip) {
  Open(8e37F);
  options_.on_nan = OnNan::kSkip;
  options_.train_steps = 100'000;
  const auto hook = MakeNanGuard(true);
  const Result<WorkerResult> result = RunWith(*hook);
  EXPECT_EQ(result.status().code(), Code::kDiverged);
  EXPECT_EQ(store_->counters().skipped.load(), 1u);
}

// --- FinalOps, GlobalStepWaiter, Feed ------------------------------------------------------------

TEST_F(HooksTest, FinalOpsAreMadeOnceAtTheEndAndTheirErrorCounts) {
  int made = 0;
  const auto hook = MakeFinalOps([&](HookContext& context) {
    EXPECT_EQ(context.store().global_step(), 20);
    ++made;
    return Status();
  });
  ASSERT_TRUE(RunWith(*hook).ok());
  EXPECT_EQ(made, 1);
  Open(0.1F);
  const auto failing = MakeFinalOps([](HookContext&) { return DataLoss("it is not there"); });
  EXPECT_EQ(RunWith(*failing).status().code(), Code::kDataLoss);
}

TEST_F(HooksTest, GlobalStepWaiterHoldsTheFirstStepAlone) {
  int pauses = 0;
  HookContext context = Context([&](std::chrono::nanoseconds time) {
    EXPECT_EQ(time, milliseconds(500));
    ++pauses;
    Push();  // somebody else's step
    return Status();
  });
  const auto hook = MakeGlobalStepWaiter(3);
  EXPECT_THAT(Logged([&] { ASSERT_TRUE(hook->BeforeRun(context).ok()); }),
              HasSubstr("Waiting for global step 3 before starting training."));
  EXPECT_EQ(pauses, 3);
  ASSERT_TRUE(hook->BeforeRun(context).ok());
  EXPECT_EQ(pauses, 3);
}

TEST_F(HooksTest, GlobalStepWaiterSaysHowFarItIsAndEndsWithThePause) {
  int pauses = 0;
  HookContext context = Context([&](std::chrono::nanoseconds) {
    for (int i = 0; i < 700; ++i) Push();
    return ++pauses == 4 ? Cancelled("asked to leave") : Status();
  });
  const auto hook = MakeGlobalStepWaiter(1'000'000);
  Status status;
  const std::string log = Logged([&] { status = hook->BeforeRun(context); });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(Count(log, "Current step is"), 1) << log;
  EXPECT_THAT(log, HasSubstr("Current step is 1400."));
}

TEST_F(HooksTest, GlobalStepWaiterOfNoStepWaitsForNothing) {
  const auto hook = MakeGlobalStepWaiter(0);
  EXPECT_EQ(Logged([&] { ASSERT_TRUE(RunWith(*hook).ok()); }), "");
}

TEST_F(HooksTest, FeedSaysWhichExamplesABatchHas) {
  std::vector<std::vector<std::uint32_t>> computed;
  std::uint32_t next = 0;
  const auto hook = MakeFeed([&](std::span<std::uint32_t> examples) {
    EXPECT_EQ(examples.size(), 10u);
    std::ranges::fill(examples, next++);
    return Status();
  });
  options_.train_steps = 3;
  WorkerCallbacks callbacks{.hooks = {hook.get()}};
  const auto backend = CreateCpuBackend().value();
  const auto model = Model::Create(config_, *backend, 100).value();
  callbacks.compute = [&](const Batch& batch, ParameterParts values, GradientParts gradients) {
    computed.emplace_back(batch.indices.begin(), batch.indices.end());
    return model->LossAndGradient(batch, values, gradients);
  };
  ASSERT_TRUE(Run(callbacks).ok());
  using Batches = std::vector<std::vector<std::uint32_t>>;
  EXPECT_EQ(computed, (Batches{std::vector<std::uint32_t>(10, 0), std::vector<std::uint32_t>(10, 1),
                               std::vector<std::uint32_t>(10, 2)}));
}

TEST_F(HooksTest, FeedNamesAnExampleThatIsNotThere) {
  const auto hook = MakeFeed([](std::span<std::uint32_t> examples) {
    examples[3] = 300;
    return Status();
  });
  const Status status = RunWith(*hook).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "a feed names the example 300, but there are 300 to train on: use 0 to 299");
  Open(0.1F);
  const auto failing = MakeFeed([](std::span<std::uint32_t>) { return Unavailable("no data"); });
  EXPECT_EQ(RunWith(*failing).status().message(), "no data");
}

TEST_F(HooksTest, OneFeedIsEnough) {
  const auto nothing = [](std::span<std::uint32_t>) { return Status(); };
  const auto a = MakeFeed(nothing), b = MakeFeed(nothing);
  EXPECT_EQ(Run({.hooks = {a.get(), b.get()}}).status().code(), Code::kFailedPrecondition);
}

// --- CheckpointSaver, SummarySaver ---------------------------------------------------------------

// What a saver and its listener are called with, in order.
class Saving final : public CheckpointListener {
 public:
  explicit Saving(const Interval& every) {
    options_.every = every;
    options_.path = "/ck/model.ckpt";
    options_.save = [this](std::int64_t step) {
      saved.push_back(step);
      calls.push_back("save");
      return save_fails ? ResourceExhausted("the disk is full") : Status();
    };
    options_.listeners = {this};
  }
  std::unique_ptr<Hook> Make() { return MakeCheckpointSaver(options_).value(); }
  void Begin() override { calls.emplace_back("begin"); }
  void BeforeSave(std::int64_t step) override {
    calls.emplace_back("before");
    step_ = step;
  }
  bool AfterSave(std::int64_t step) override {
    EXPECT_EQ(step, step_);
    calls.emplace_back("after");
    return step >= stop_at;
  }
  void End(std::int64_t step) override {
    calls.emplace_back("end");
    ended_at = step;
  }

  std::vector<std::int64_t> saved;
  std::vector<std::string> calls;
  std::int64_t stop_at = std::numeric_limits<std::int64_t>::max(), ended_at = -1;
  bool save_fails = false;

 private:
  CheckpointSaverOptions options_;
  std::int64_t step_ = -1;
};

TEST_F(HooksTest, CheckpointSaverSavesAtTheStartByItsTimerAndAtTheEnd) {
  Saving saving({.steps = 8});
  const auto hook = saving.Make();
  const std::string log = Logged([&] { ASSERT_TRUE(RunWith(*hook).ok()); });
  EXPECT_THAT(saving.saved, ElementsAre(0, 8, 16, 20));
  EXPECT_THAT(log, HasSubstr("Saving checkpoints for 8 into /ck/model.ckpt."));
  EXPECT_EQ(saving.ended_at, 20);
  EXPECT_THAT(saving.calls,
              ElementsAre("begin", "before", "save", "after", "before", "save", "after", "before",
                          "save", "after", "before", "save", "after", "end"));
}

TEST_F(HooksTest, CheckpointSaverSavesAStepOnce) {
  options_.train_steps = 16;
  Saving saving({.time = seconds(4)});
  const auto hook = saving.Make();
  ASSERT_TRUE(RunWith(*hook).ok());
  EXPECT_THAT(saving.saved, ElementsAre(0, 8, 16)) << "the last by the timer, not again at the end";
}

TEST_F(HooksTest, CheckpointSaverSavesAgainWhenASessionFollows) {
  Saving saving({.steps = 1000});
  const auto hook = saving.Make();
  ASSERT_TRUE(RunWith(*hook).ok());
  ASSERT_TRUE(GoOn(*hook, 30).ok());
  EXPECT_THAT(saving.saved, ElementsAre(0, 20, 20, 30));
}

TEST_F(HooksTest, AListenerOfCheckpointsCanStopTraining) {
  Saving saving({.steps = 8});
  saving.stop_at = 8;
  const auto hook = saving.Make();
  const Result<WorkerResult> result = RunWith(*hook);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, LeaveReason::kHook);
  EXPECT_THAT(saving.saved, ElementsAre(0, 8));
  EXPECT_EQ(saving.ended_at, 8);
}

TEST_F(HooksTest, ASaveThatFailsEndsTheWorkerWithItsError) {
  Saving saving({.steps = 8});
  saving.save_fails = true;
  const auto hook = saving.Make();
  EXPECT_EQ(RunWith(*hook).status().message(), "the disk is full");
  EXPECT_THAT(saving.calls, ElementsAre("begin", "before", "save"));
}

TEST_F(HooksTest, SummarySaverStartsAtTheFirstStepAndFlushesAtTheEnd) {
  std::vector<std::string> calls;
  SummarySaverOptions options{.every = {.steps = 8}};
  options.start = [&](std::int64_t step) {
    calls.push_back("start " + std::to_string(step));
    return Status();
  };
  options.write = [&](HookContext& context) {
    calls.push_back("write " + std::to_string(context.global_step()));
    return Status();
  };
  const auto bare = MakeSummarySaver(options).value();
  ASSERT_TRUE(RunWith(*bare).ok());
  EXPECT_THAT(calls, ElementsAre("start 1", "write 1", "write 9", "write 17"));
  calls.clear();
  Open(0.1F);
  options.start = {};
  options.flush = [&] {
    calls.emplace_back("flush");
    return Status();
  };
  const auto flushing = MakeSummarySaver(options).value();
  ASSERT_TRUE(RunWith(*flushing).ok());
  EXPECT_THAT(calls, ElementsAre("write 1", "write 9", "write 17", "flush"));
}

TEST_F(HooksTest, SaversHaveTheIntervalsOfAMonitoredSession) {
  EXPECT_EQ(CheckpointSaverOptions().every.time, seconds(600));
  EXPECT_EQ(SummarySaverOptions().every.steps, 100);
  EXPECT_EQ(StepCounterOptions().every.steps, 100);
}

}  // namespace
}  // namespace passel
