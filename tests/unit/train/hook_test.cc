// The order in which a worker calls its hooks, and what they may ask of it.

#include "train/hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/function_hook.h"
#include "support/small_worker.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Notes each call, with its name before it; fails in the one that `fails` names.
class Recorder final : public Hook {
 public:
  Recorder(std::string name, std::vector<std::string>* calls, std::string fails = "")
      : name_(std::move(name)), calls_(calls), fails_(std::move(fails)) {}
  Status Begin() override { return Note("begin"); }
  Status AfterCreateSession(HookContext&) override { return Note("session"); }
  Status BeforeRun(HookContext&) override { return Note("before"); }
  Status BeforePush(HookContext&, const GradientBuffer&) override { return Note("push"); }
  Status AfterRun(HookContext&) override { return Note("after"); }
  Status AfterEvaluation(HookContext&, const EvaluationReport& report) override {
    return Note(report.at_end ? "last evaluation" : "evaluation");
  }
  Status End(HookContext&) override { return Note("end"); }

 private:
  Status Note(const std::string& call) {
    calls_->push_back(name_ + " " + call);
    return call == fails_ ? ResourceExhausted("no space for " + name_) : Status();
  }
  const std::string name_;
  std::vector<std::string>* const calls_;
  const std::string fails_;
};

class HookTest : public test::SmallWorkerTest {
 protected:
  void SetUp() override {
    SmallWorkerTest::SetUp();
    Open(0.1F);
  }
  std::vector<std::string> calls_;
};

TEST_F(HookTest, AreCalledInTheirOrderAroundEachStep) {
  Recorder a("a", &calls_), b("b", &calls_);
  options_.train_steps = 2;
  options_.evaluation_steps = 2;
  ASSERT_TRUE(Run({.hooks = {&a, &b}}).ok());
  EXPECT_THAT(calls_, ElementsAre("a begin", "b begin", "a session", "b session",  //
                                  "a before", "b before", "a push", "b push", "a after", "b after",
                                  "a before", "b before", "a push", "b push", "a after", "b after",
                                  "a evaluation", "b evaluation", "a end", "b end",
                                  "a last evaluation", "b last evaluation"));
}

TEST_F(HookTest, AnErrorEndsTheWorkerAndNobodysEndIsCalled) {
  for (const std::string where : {"begin", "session", "before", "push", "after"}) {
    calls_.clear();
    Open(0.1F);
    Recorder a("a", &calls_, where), b("b", &calls_);
    const Result<WorkerResult> result = Run({.hooks = {&a, &b}});
    EXPECT_EQ(result.status().code(), Code::kResourceExhausted);
    EXPECT_EQ(result.status().message(), "no space for a");
    EXPECT_EQ(calls_.back(), "a " + where) << "the others are not called any more";
  }
}

TEST_F(HookTest, AnErrorOfOthersIsNotAnEndEither) {
  Recorder a("a", &calls_);
  WorkerCallbacks callbacks{.hooks = {&a}};
  int looks = 0;
  callbacks.check = [&](bool*) { return ++looks == 2 ? Unavailable("it is gone") : Status(); };
  EXPECT_EQ(Run(callbacks).status().code(), Code::kUnavailable);
  EXPECT_THAT(calls_, ElementsAre("a begin", "a session", "a before", "a push", "a after"));
}

TEST_F(HookTest, ValuesThatAreNotFiniteAreNotHandedToEnd) {
  // The last update is what spoils them: its gradient is finite.
  config_.loss = LossReduction::kSum;
  options_.batch_size = 100;
  options_.train_steps = 1;
  Open(8e37F);
  Recorder a("a", &calls_);
  EXPECT_EQ(Run({.hooks = {&a}}).status().code(), Code::kDiverged);
  EXPECT_THAT(calls_, ElementsAre("a begin", "a session", "a before", "a push", "a after"));
}

// Asks the worker to stop after its third step.
class Stopper final : public Hook {
 public:
  Status AfterRun(HookContext& context) override {
    if (context.local_step() == 3) context.RequestStop();
    return {};
  }
};

TEST_F(HookTest, AStopOnRequestIsAnEndLikeAnyOther) {
  Stopper stopper;
  Recorder a("a", &calls_);
  const Result<WorkerResult> result = Run({.hooks = {&stopper, &a}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kHook);
  EXPECT_EQ(result->local_steps, 3);
  EXPECT_TRUE(result->evaluation.has_value());
  EXPECT_EQ(store_->membership()[0].phase, Phase::kDone);
  EXPECT_THAT(calls_, ::testing::Contains("a end"));
}

// Looks at everything there is to see.
class Looker final : public Hook {
 public:
  explicit Looker(const ParameterStore& store) : store_(store) {}
  Status AfterCreateSession(HookContext& context) override {
    EXPECT_EQ(context.task(), "worker/0");
    EXPECT_TRUE(context.is_chief());
    EXPECT_TRUE(context.values().empty());
    EXPECT_EQ(context.global_step(), 0);
    return {};
  }
  Status BeforeRun(HookContext& context) override {
    EXPECT_EQ(context.global_step(), steps_);
    EXPECT_EQ(context.local_step(), steps_);
    return {};
  }
  Status AfterRun(HookContext& context) override {
    ++steps_;
    EXPECT_EQ(context.global_step(), steps_);
    EXPECT_EQ(context.local_step(), steps_);
    EXPECT_EQ(context.step().outcome.global_step, steps_);
    EXPECT_EQ(context.loss(), context.counters().loss.load());
    EXPECT_EQ(context.accuracy(), context.counters().accuracy.load());
    EXPECT_GT(context.loss(), 0);
    EXPECT_EQ(context.values().size(), 2u) << "weights and biases";
    EXPECT_EQ(&context.store(), &store_);
    return {};
  }
  Status End(HookContext& context) override {
    EXPECT_EQ(context.global_step(), steps_);
    EXPECT_EQ(context.local_step(), steps_);
    return {};
  }

 private:
  const ParameterStore& store_;
  std::int64_t steps_ = 0;
};

TEST_F(HookTest, SeesTheStepAndTheStore) {
  Looker looker(*store_);
  ASSERT_TRUE(Run({.hooks = {&looker}}).ok());
}

TEST_F(HookTest, AWorkerThatIsNotTheChiefSaysSo) {
  const HookContext context(*store_, "worker/1", false, {});
  EXPECT_FALSE(context.is_chief());
  EXPECT_EQ(context.task(), "worker/1");
}

// Waits for something that never comes.
class Waiter final : public Hook {
 public:
  Status BeforeRun(HookContext& context) override { return context.Pause(std::chrono::hours(1)); }
};

TEST_F(HookTest, APauseEndsWhenTheWorkerIsToLeave) {
  Waiter waiter;
  WorkerCallbacks callbacks{.hooks = {&waiter}};
  int looks = 0;
  callbacks.check = [&](bool* leave) -> Status {
    *leave = ++looks > 1;
    return {};
  };
  Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kAsked);
  EXPECT_EQ(result->local_steps, 0);
  Open(0.1F);
  looks = 0;
  callbacks.check = [&](bool*) {
    if (++looks > 1) store_->Stop();
    return Status();
  };
  result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->reason, LeaveReason::kStopped);
}

TEST_F(HookTest, SeesTheGradientThatIsPushed) {
  // Three batches, one push: plain SGD moves the values by the rate times what a hook has seen.
  struct Copier final : Hook {
    std::vector<float> seen;
    Status BeforePush(HookContext& context, const GradientBuffer& gradient) override {
      EXPECT_EQ(context.local_step(), 2) << "steps before the one that pushes";
      seen.assign(gradient.values(1).begin(), gradient.values(1).end());
      return {};
    }
  } copier;
  options_.push_every = 3;
  options_.local_steps = 3;
  const std::span<const float> biases = store_->Pull(PullMode::kView)->values(1);
  const std::vector<float> before(biases.begin(), biases.end());
  ASSERT_TRUE(Run({.hooks = {&copier}}).ok());
  ASSERT_EQ(copier.seen.size(), 10u);
  const float* after = arena_->shard(0).values + store_->variables()[1].offset;
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_FLOAT_EQ(after[i], before[i] - 0.1F * copier.seen[i]) << i;
  }
}

TEST_F(HookTest, HearsOfStepsThatAreSkipped) {
  Open(8e37F);
  options_.on_nan = OnNan::kSkip;
  struct Counter final : Hook {
    std::int64_t made = 0, skipped = 0;
    Status AfterRun(HookContext& context) override {
      ++(context.step().skipped ? skipped : made);
      if (skipped == 5) context.RequestStop();
      return {};
    }
  } counter;
  options_.evaluate_at_end = false;
  const Result<WorkerResult> result = Run({.hooks = {&counter}});
  EXPECT_EQ(counter.skipped, 5);
  EXPECT_EQ(counter.made, static_cast<std::int64_t>(store_->counters().local_steps.load()));
  EXPECT_EQ(store_->counters().skipped.load(), 5u);
}

}  // namespace
}  // namespace passel
