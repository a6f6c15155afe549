#include "train/worker_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "compute/cpu_backend.h"
#include "data/digits.h"
#include "store/in_process_store.h"

namespace passel {
namespace {

// A store of one worker, a softmax model and a few digits.
class WorkerLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string dir = std::filesystem::temp_directory_path() / "passel-loop.XXXXXX";
    ASSERT_NE(::mkdtemp(dir.data()), nullptr);
    ASSERT_TRUE(WriteGeneratedDigits(dir, 300, 50, 1).ok());
    Result<std::unique_ptr<OwnedDataset>> loaded = Load(dir);
    std::filesystem::remove_all(dir);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    data_ = std::move(*loaded);
    config_ = DefaultModelConfig(ModelKind::kSoftmax);
    config_.inputs = kDigitPixels;
    config_.classes = 10;
    options_.train_steps = 20;
    options_.batch_size = 10;
    options_.seed = 1;
  }

  static Result<std::unique_ptr<OwnedDataset>> Load(const std::string& dir) {
    PASSEL_ASSIGN_OR_RETURN(auto data, OwnedDataset::Load(dir));
    return std::make_unique<OwnedDataset>(std::move(data));
  }

  void Open(float learning_rate) {
    StorePlan plan;
    plan.optimizer.kind = OptimizerKind::kSgd;
    plan.optimizer.learning_rate = learning_rate;
    plan.variables = PlaceModel(config_, 1, {}).value();
    store_.reset();
    arena_ = InProcessArena::Create(plan).value();
    Reopen();
    ASSERT_TRUE(InitializeStore(config_, *layout_, *store_).ok());
  }
  void Reopen() {
    store_ = arena_->Open(0, {}).value();
    layout_.emplace(ModelLayout::Make(config_, store_->variables()).value());
  }
  Result<WorkerResult> Run(const WorkerCallbacks& callbacks = {}) {
    const auto backend = CreateCpuBackend().value();
    const auto model = Model::Create(config_, *backend, 100).value();
    return RunWorker(options_, callbacks, *model, *layout_, **data_, *store_);
  }

  std::unique_ptr<OwnedDataset> data_;
  ModelConfig config_;
  WorkerOptions options_;
  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<ParameterStore> store_;
  std::optional<ModelLayout> layout_;
};

TEST_F(WorkerLoopTest, LeavesWhenItObservesTheLastStep) {
  Open(0.1F);
  std::vector<std::int64_t> steps;
  WorkerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& step) { steps.push_back(step.outcome.global_step); };
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

TEST_F(WorkerLoopTest, LeavesAfterTheCurrentStepWhenAsked) {
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
}

TEST_F(WorkerLoopTest, LeavesWhenTheStoreIsStopped) {
  Open(0.1F);
  WorkerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& step) {
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
  WorkerCallbacks callbacks;
  Open(0.1F);
  callbacks.on_step = [&](const StepReport& step) { whole.push_back(step.loss); };
  ASSERT_TRUE(Run(callbacks).ok());
  Open(0.1F);
  callbacks.on_step = [&](const StepReport& step) { halves.push_back(step.loss); };
  options_.train_steps = 10;
  ASSERT_TRUE(Run(callbacks).ok());
  Reopen();
  ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(5))).ok());
  options_.train_steps = 20;
  ASSERT_TRUE(Run(callbacks).ok());
  EXPECT_EQ(whole, halves);
}

TEST_F(WorkerLoopTest, GradientThatIsNotFiniteIsNamedAndNotPushed) {
  Open(8e37F);
  const Result<WorkerResult> result = Run();
  ASSERT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("not finite"));
  EXPECT_THAT(result.status().message(), ::testing::HasSubstr("--learning_rate"));
}

TEST_F(WorkerLoopTest, SkippingForEverEnds) {
  Open(8e37F);
  options_.on_nan = OnNan::kSkip;
  options_.train_steps = 1'000'000;
  const Result<WorkerResult> result = Run();
  ASSERT_EQ(result.status().code(), Code::kInvalidArgument);
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

}  // namespace
}  // namespace passel
