#include "train/worker_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <mutex>
#include <thread>

#include "compute/cpu_backend.h"
#include "store/open_store.h"
#include "support/function_hook.h"
#include "support/small_worker.h"

namespace passel {
namespace {

using WorkerLoopTest = test::SmallWorkerTest;

TEST_F(WorkerLoopTest, LeavesWhenItObservesTheLastStep) {
  Open(0.1F);
  std::vector<std::int64_t> steps;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  hook.on_step = [&](const StepReport& step) { steps.push_back(step.outcome.global_step); };
  const Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kStepsReached);
  EXPECT_EQ(result->global_step, 20);
  EXPECT_EQ(result->local_steps, 20);
  ASSERT_EQ(steps.size(), 20u);
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(steps.back(), 20);
  EXPECT_GE(store_->counters().final_accuracy.load(), 0);
  EXPECT_EQ(store_->membership()[0].phase, Phase::kDone);
}

TEST_F(WorkerLoopTest, LeavesAfterTheCurrentStepWhenAskedAndDoesNotEvaluate) {
  Open(0.1F);
  WorkerCallbacks callbacks;
  int looks = 0;
  callbacks.check = [&](bool* leave) -> Status {
    *leave = ++looks == 6;
    return {};
  };
  const Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, LeaveReason::kAsked);
  EXPECT_EQ(result->local_steps, 5);
  EXPECT_FALSE(result->evaluation.has_value());
}

TEST_F(WorkerLoopTest, LeavesWhenTheStoreIsStopped) {
  Open(0.1F);
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  hook.on_step = [&](const StepReport& step) {
    if (step.local_step == 3) store_->Stop();
  };
  const Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, LeaveReason::kStopped);
  EXPECT_EQ(result->local_steps, 3);
}

TEST_F(WorkerLoopTest, ErrorOfTheSurroundingsEndsItWithThatError) {
  Open(0.1F);
  WorkerCallbacks callbacks;
  callbacks.check = [](bool*) { return Unavailable("the ps is gone"); };
  EXPECT_EQ(Run(callbacks).status().code(), Code::kUnavailable);
}

TEST_F(WorkerLoopTest, NextLifeGoesOnWithTheNextBatch) {
  // Loss by loss, two lives of 10 steps see what one life of 20 sees.
  std::vector<double> whole, halves;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  Open(0.1F);
  hook.on_step = [&](const StepReport& step) { whole.push_back(step.loss); };
  ASSERT_TRUE(Run(callbacks).ok());
  Open(0.1F);
  hook.on_step = [&](const StepReport& step) { halves.push_back(step.loss); };
  options_.train_steps = 10;
  ASSERT_TRUE(Run(callbacks).ok());
  Reopen();
  ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(5))).ok());
  options_.train_steps = 20;
  ASSERT_TRUE(Run(callbacks).ok());
  EXPECT_EQ(whole, halves);
}

// The weights that the first gradient is computed on: those of the store, or a copy.
TEST_F(WorkerLoopTest, ValuesAreCopiedWhereSeveralWorkersChangeThemAtAnyTime) {
  const auto computes_on_a_copy = [&](int workers, Mode mode, std::optional<PullMode> pull) {
    StorePlan plan;
    plan.mode = mode;
    plan.num_workers = workers;
    plan.variables = PlaceModel(config_, 1, {}).value();
    store_.reset();
    arena_ = InProcessArena::Create(plan).value();
    WaitOptions engine;
    engine.start_wait = std::chrono::milliseconds(1);  // rounds go on without the others
    store_ = arena_->Open(0, engine).value();
    layout_.emplace(ModelLayout::Make(config_, store_->variables()).value());
    EXPECT_TRUE(InitializeStore(config_, *layout_, *store_).ok());
    EXPECT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(5))).ok());
    options_.pull = pull;
    options_.local_steps = 1;
    const float* seen = nullptr;
    WorkerCallbacks callbacks;
    callbacks.compute = [&](const Batch&, ParameterParts params, GradientParts gradients) {
      seen = params[0][0].data;
      for (std::size_t v = 0; v < gradients.size(); ++v) {
        const std::size_t elements = plan.variables[layout_->parts()[v][0]].elements;
        std::fill_n(gradients[v][0].data, elements, 0.F);
      }
      return Result<BatchResult>(BatchResult{});
    };
    EXPECT_TRUE(Run(callbacks).ok());
    const ShardMemory& memory = arena_->shard(0);
    return seen < memory.values || seen >= memory.values + memory.floats;
  };
  for (const Mode mode : {Mode::kHogwild, Mode::kLocked, Mode::kSsp}) {
    EXPECT_TRUE(computes_on_a_copy(2, mode, std::nullopt)) << ModeName(mode);
  }
  EXPECT_TRUE(computes_on_a_copy(1, Mode::kHogwild, PullMode::kCopy));
#if !defined(PASSEL_ATOMIC_VALUES)  // where a view is a copy too
  EXPECT_FALSE(computes_on_a_copy(1, Mode::kHogwild, std::nullopt));
  EXPECT_FALSE(computes_on_a_copy(2, Mode::kBarrier, std::nullopt));
  EXPECT_FALSE(computes_on_a_copy(2, Mode::kHogwild, PullMode::kView));
  config_.kind = ModelKind::kMlp;
  config_.hidden = {kMostCopiedBytes / sizeof(float) / kDigitPixels};  // with its biases: too many
  EXPECT_FALSE(computes_on_a_copy(2, Mode::kHogwild, std::nullopt));
#endif
}

TEST_F(WorkerLoopTest, GradientThatIsNotFiniteIsNamedAndNotPushed) {
  Open(8e37F);
  const Result<WorkerResult> result = Run();
  ASSERT_EQ(result.status().code(), Code::kDiverged);
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("not finite"));
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("--learning_rate"));
}

TEST_F(WorkerLoopTest, SkippingForEverEnds) {
  Open(8e37F);
  options_.on_nan = OnNan::kSkip;
  options_.train_steps = 1'000'000;
  const Result<WorkerResult> result = Run();
  ASSERT_EQ(result.status().code(), Code::kDiverged);
  EXPECT_THAT(result.status().message(),
              ::testing::HasSubstr(std::to_string(kMaxSkipsInARow) + " gradients in a row"));
  EXPECT_EQ(store_->counters().skipped.load() + 1, static_cast<std::uint64_t>(kMaxSkipsInARow));
}

TEST_F(WorkerLoopTest, BatchAboveTheSetIsNamed) {
  Open(0.1F);
  options_.batch_size = 301;
  const Result<WorkerResult> result = Run();
  ASSERT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("300"));
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("301"));
}

TEST_F(WorkerLoopTest, LeavesAfterItsLocalStepsOverAllItsLives) {
  Open(0.1F);
  options_.train_steps = kNoStepLimit;
  options_.local_steps = 7;
  std::vector<std::int64_t> steps;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  hook.on_step = [&](const StepReport& step) { steps.push_back(step.local_step); };
  Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kStepsReached);
  EXPECT_EQ(result->local_steps, 7);
  Reopen();
  ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(5))).ok());
  options_.local_steps = 10;
  result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->local_steps, 3);
  EXPECT_EQ(store_->global_step(), 10);
  EXPECT_THAT(steps, ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST_F(WorkerLoopTest, WhicheverStopRuleComesFirstCounts) {
  Open(0.1F);
  options_.train_steps = 4;
  options_.local_steps = 7;
  ASSERT_EQ(Run()->local_steps, 4);
}

TEST_F(WorkerLoopTest, EvaluatesAtMultiplesOfTheGlobalStepAndAtItsEnd) {
  Open(0.1F);
  options_.train_steps = 11;
  options_.evaluation_steps = 5;
  std::vector<std::int64_t> steps, evaluated;
  std::vector<TestResult> results;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  hook.on_step = [&](const StepReport& step) { steps.push_back(step.outcome.global_step); };
  hook.on_evaluation = [&](const EvaluationReport& report) {
    if (report.at_end) return;
    evaluated.push_back(report.global_step);
    EXPECT_EQ(steps.back(), report.global_step) << "a step comes before its evaluation";
    results.push_back(report.result);
  };
  const Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(evaluated, ::testing::ElementsAre(5, 10));
  ASSERT_TRUE(result->evaluation.has_value());
  EXPECT_EQ(result->evaluation->accuracy, store_->counters().final_accuracy.load());
  EXPECT_NEAR(result->evaluation->loss_sum, 50 * result->evaluation->loss, 1e-9);
  EXPECT_LT(results[1].loss, results[0].loss);
  EXPECT_LT(result->evaluation->loss, results[1].loss);
}

TEST_F(WorkerLoopTest, ValidationImagesAreEvaluatedAndNotTrainedOn) {
  validation_size_ = 290;
  options_.batch_size = 11;  // of the ten that are left
  Open(0.1F);
  EXPECT_THAT(Run().status().message(), ::testing::HasSubstr("1 to 10 examples"));
  options_.batch_size = 10;
  options_.evaluation_set = EvaluationSet::kValidation;
  options_.train_steps = 2000;
  Open(0.1F);
  const Result<WorkerResult> result = Run();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_TRUE(result->evaluation.has_value());
  EXPECT_NEAR(result->evaluation->loss_sum, 290 * result->evaluation->loss, 1e-9);
  // Ten images are learnt by heart; the others were never seen.
  EXPECT_EQ(store_->counters().accuracy.load(), 1);
  EXPECT_LT(result->evaluation->accuracy, 0.9);
  EXPECT_LT(store_->counters().final_accuracy.load(), 0);  // that is of the test images
}

TEST_F(WorkerLoopTest, EvaluatesAtItsEndOnlyIfItIsTo) {
  Open(0.1F);
  options_.evaluate_at_end = false;
  const Result<WorkerResult> result = Run();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_FALSE(result->evaluation.has_value());
  EXPECT_LT(store_->counters().final_accuracy.load(), 0);
}

TEST_F(WorkerLoopTest, AWishToLeaveEndsTheLastEvaluation) {
  Open(0.1F);
  bool ended = false;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  hook.on_end = [&] { ended = true; };
  callbacks.check = [&](bool* leave) -> Status {
    *leave = ended;
    // Nobody is needed any more.
    return ended ? Unavailable("the ps is gone") : Status();
  };
  const Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kAsked);
  EXPECT_EQ(result->global_step, 20);
  EXPECT_FALSE(result->evaluation.has_value());
  EXPECT_EQ(store_->membership()[0].phase, Phase::kDone);
}

// Only a look at the values, or at what they give, tells: no gradient comes after them.
TEST_F(WorkerLoopTest, LastUpdateThatSpoilsTheValuesIsAnError) {
  options_.train_steps = 1;
  for (const bool sum : {false, true}) {
    config_.loss = sum ? LossReduction::kSum : LossReduction::kMean;
    Open(8e37F);
    const Result<WorkerResult> result = Run();
    EXPECT_EQ(store_->global_step(), 1);
    ASSERT_EQ(result.status().code(), Code::kDiverged) << sum;
    EXPECT_THAT(result.status().message(),
                ::testing::HasSubstr(sum ? "worker/0: the variable "
                                         : "the loss on the test images is not finite"));
  }
}

// Each multiple once, whatever the workers and the mode.
TEST_F(WorkerLoopTest, WorkersEvaluateEachMultipleOnceInAllModes) {
  constexpr int kWorkers = 3;
  for (const Mode mode : {Mode::kHogwild, Mode::kLocked, Mode::kSsp, Mode::kBarrier}) {
    SCOPED_TRACE(ModeName(mode));
    StorePlan plan;
    plan.mode = mode;
    plan.mode.number = mode == Mode::kSsp ? 2 : 0;
    plan.optimizer.kind = OptimizerKind::kSgd;
    plan.optimizer.learning_rate = 0.1;
    plan.num_workers = kWorkers;
    plan.variables = PlaceModel(config_, 1, {}).value();
    arena_ = InProcessArena::Create(plan).value();
    const ModelLayout layout = ModelLayout::Make(config_, plan.variables).value();
    options_.train_steps = 60;
    options_.evaluation_steps = 7;
    std::mutex mutex;
    std::vector<std::int64_t> evaluated;
    std::vector<std::thread> threads;
    const DataSplit split = SplitValidation(**data_, 0).value();
    for (int k = 0; k < kWorkers; ++k) {
      threads.emplace_back([&, k] {
        const auto store = arena_->Open(k, {}).value();
        const Status ready =
            k == 0 ? InitializeStore(config_, layout, *store)
                   : store->WaitUntilInitialized(Deadline::After(std::chrono::seconds(30)));
        ASSERT_TRUE(ready.ok()) << ready.message();
        const auto backend = CreateCpuBackend().value();
        const auto model = Model::Create(config_, *backend, 100).value();
        test::FunctionHook hook;
        WorkerCallbacks callbacks;
        callbacks.hooks = {&hook};
        hook.on_evaluation = [&](const EvaluationReport& report) {
          if (report.at_end) return;
          const std::lock_guard lock(mutex);
          evaluated.push_back(report.global_step);
        };
        const auto result = RunWorker(options_, callbacks, *model, layout, split, *store);
        EXPECT_TRUE(result.ok()) << result.status().message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(evaluated, ::testing::UnorderedElementsAre(7, 14, 21, 28, 35, 42, 49, 56));
  }
}

}  // namespace
}  // namespace passel
