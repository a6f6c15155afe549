// Several local steps in one push: the values are those of one step on all their batches, by an
// independent computation, and everything that is counted says so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <numeric>
#include <thread>

#include "compute/cpu_backend.h"
#include "data/samplers.h"
#include "store/open_store.h"
#include "support/function_hook.h"
#include "support/reference_network.h"
#include "train/batch_source.h"
#include "train/worker_loop.h"

namespace passel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kInputs = 6, kHidden = 5, kClasses = 3, kTrainExamples = 26, kSeed = 9;

double FirstValue(std::size_t variable, std::size_t element) {
  return (static_cast<double>((variable * 53 + element * 29 + 17) % 128) - 64) / 64;
}

// Values of all variables after one update for each of `sizes` examples, in double precision. Adam
// is that of its paper, with the usual constants.
std::vector<std::vector<double>> AfterUpdatesOf(const std::vector<std::size_t>& sizes,
                                                const Examples& train, bool mean,
                                                const OptimizerConfig& optimizer) {
  const NetworkShape shape{{{kInputs, kHidden}, {kHidden, kClasses}}, false, mean};
  NextBatchSampler sampler({.num_examples = kTrainExamples, .seed = kSeed});
  std::vector<std::vector<double>> values, m, s;
  for (const std::size_t elements : {kInputs * kHidden, kHidden, kHidden * kClasses, kClasses}) {
    auto& variable = values.emplace_back();
    for (std::size_t e = 0; e < elements; ++e) variable.push_back(FirstValue(values.size() - 1, e));
    m.emplace_back(elements);
    s.emplace_back(elements);
  }
  for (std::size_t t = 1; t <= sizes.size(); ++t) {
    std::vector<std::uint32_t> batch(sizes[t - 1]);
    for (std::uint32_t& index : batch) sampler.Next({&index, 1});
    const ReferenceResult step = ReferenceStep(shape, values, train, batch);
    for (std::size_t v = 0; v < values.size(); ++v) {
      for (std::size_t e = 0; e < values[v].size(); ++e) {
        const double g = step.gradients[v][e];
        if (optimizer.kind == OptimizerKind::kSgd) {
          values[v][e] -= optimizer.learning_rate * g;
          continue;
        }
        m[v][e] += (g - m[v][e]) * (1 - 0.9);
        s[v][e] += (g * g - s[v][e]) * (1 - 0.999);
        const auto steps = static_cast<double>(t);
        const double alpha = optimizer.learning_rate * std::sqrt(1 - std::pow(0.999, steps)) /
                             (1 - std::pow(0.9, steps));
        values[v][e] -= alpha * m[v][e] / (std::sqrt(s[v][e]) + 1e-8);
      }
    }
  }
  return values;
}

class PushEveryTest : public ::testing::Test {
 protected:
  PushEveryTest() {
    config_.kind = ModelKind::kMlp;
    config_.inputs = kInputs;
    config_.hidden = {kHidden};
    config_.classes = kClasses;
    config_.loss = LossReduction::kMean;
    for (int e = 0; e < kTrainExamples; ++e) {
      labels_.push_back(static_cast<std::uint8_t>((e * 7 + e / 3) % kClasses));
      for (int i = 0; i < kInputs; ++i) {
        pixels_.push_back(static_cast<std::uint8_t>((e * 71 + i * 37 + 11) % 256));
      }
    }
    split_.train.images = pixels_;
    split_.train.labels = labels_;
    split_.train.image_pixels = kInputs;
    options_.train_steps = kNoStepLimit;
    options_.batch_size = 4;
    options_.seed = kSeed;
    options_.push_every = 3;
    plan_.optimizer.kind = OptimizerKind::kSgd;
    plan_.optimizer.learning_rate = 0.1;
  }

  void Open(int shards = 1) {
    store_.reset();
    plan_.variables = PlaceModel(config_, shards, {}).value();
    arena_ = InProcessArena::Create(plan_).value();
    layout_.emplace(ModelLayout::Make(config_, plan_.variables).value());
    store_ = OpenStore(0);
    const auto fill = [&](VarId id, std::span<float> values) {
      for (std::size_t e = 0; e < values.size(); ++e) {
        values[e] = static_cast<float>(FirstValue(layout_->variable_of(id), e));
      }
    };
    ASSERT_TRUE(store_->Initialize(fill).ok());
    ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(seconds(5))).ok());
  }
  std::unique_ptr<ParameterStore> OpenStore(int worker) {
    WaitOptions engine;
    engine.spin = std::chrono::microseconds(20);
    engine.stall_limit = stall_limit_;
    return arena_->Open(worker, engine).value();
  }
  Result<WorkerResult> RunWith(ParameterStore& store, const WorkerCallbacks& callbacks = {}) const {
    const auto backend = CreateCpuBackend().value();
    const auto model = Model::Create(config_, *backend, 100).value();
    return RunWorker(options_, callbacks, *model, *layout_, split_, store);
  }
  Result<WorkerResult> Run(const WorkerCallbacks& callbacks = {}) {
    return RunWith(*store_, callbacks);
  }
  std::span<const float> ValuesOf(VarId id) const {
    const VariableInfo& v = plan_.variables[id];
    return {arena_->shard(v.shard).values + v.offset, v.elements};
  }
  std::vector<float> Values() const {
    std::vector<float> all;
    for (VarId id = 0; id < plan_.variables.size(); ++id) {
      all.insert(all.end(), ValuesOf(id).begin(), ValuesOf(id).end());
    }
    return all;
  }
  WorkerCounters& counters(int worker = 0) { return arena_->shard(0).tasks[worker].counters; }

  ModelConfig config_;
  std::vector<std::uint8_t> pixels_, labels_;
  DataSplit split_;
  WorkerOptions options_;
  StorePlan plan_;
  std::chrono::nanoseconds stall_limit_ = std::chrono::minutes(10);
  std::unique_ptr<InProcessArena> arena_;
  std::optional<ModelLayout> layout_;
  std::unique_ptr<ParameterStore> store_;
};

TEST_F(PushEveryTest, GivesTheValuesOfOneBatchThatIsAsLargeAsAll) {
  struct Case {
    OptimizerKind optimizer;
    double learning_rate;
    LossReduction loss;
    std::size_t batch_size;
    std::vector<std::size_t> pushes;  // local steps of each
  };
  const Case cases[] = {
      {OptimizerKind::kSgd, 0.5, LossReduction::kMean, 4, {3, 3, 3, 3, 3, 3}},
      {OptimizerKind::kSgd, 0.0625, LossReduction::kSum, 4, {3, 3, 3, 3, 3, 3}},
      {OptimizerKind::kAdam, 0.01, LossReduction::kMean, 4, {3, 3, 3, 3, 3, 3}},
      {OptimizerKind::kAdam, 0.01, LossReduction::kSum, 5, {4, 4, 4, 4, 4}},
      // The last takes what local steps are left.
      {OptimizerKind::kSgd, 0.5, LossReduction::kMean, 4, {5, 5, 3}},
      {OptimizerKind::kSgd, 0.5, LossReduction::kMean, 1, {26, 26}},
      {OptimizerKind::kAdam, 0.01, LossReduction::kMean, 3, {2}},
  };
  int number = 0;
  for (const Case& c : cases) {
    std::vector<std::size_t> sizes;
    for (const std::size_t steps : c.pushes) sizes.push_back(steps * c.batch_size);
    for (const Mode mode :
         {Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Mode::kReplicas, Mode::kSsp}) {
      for (const int shards : {1, 2}) {
        SCOPED_TRACE(std::to_string(number) + " " + std::string(ModeName(mode)));
        config_.loss = c.loss;
        plan_.optimizer.kind = c.optimizer;
        plan_.optimizer.learning_rate = c.learning_rate;
        plan_.mode = mode;
        plan_.mode.number = mode == Mode::kReplicas ? 1 : 0;
        options_.batch_size = static_cast<std::uint32_t>(c.batch_size);
        options_.push_every = static_cast<int>(c.pushes[0]);
        options_.local_steps = std::accumulate(c.pushes.begin(), c.pushes.end(), 0);
        Open(shards);
        const Result<WorkerResult> result = Run();
        ASSERT_TRUE(result.ok()) << result.status().message();
        EXPECT_EQ(result->local_steps, options_.local_steps);
        EXPECT_EQ(store_->global_step(), static_cast<std::int64_t>(c.pushes.size()));
        const auto values = AfterUpdatesOf(sizes, {pixels_.data(), labels_.data(), kTrainExamples},
                                           c.loss == LossReduction::kMean, plan_.optimizer);
        for (VarId id = 0; id < plan_.variables.size(); ++id) {
          const std::vector<double>& expected = values[layout_->variable_of(id)];
          ASSERT_EQ(ValuesOf(id).size(), expected.size());
          for (std::size_t e = 0; e < expected.size(); ++e) {
            EXPECT_NEAR(ValuesOf(id)[e], expected[e], 4e-6) << plan_.variables[id].name << " " << e;
          }
        }
      }
    }
    ++number;
  }
}

TEST_F(PushEveryTest, RoundsTakeTheMeanOfThePushes) {
  plan_.mode = Mode::kReplicas;
  plan_.mode.number = 2;  // of one worker: two pushes, so six batches
  options_.local_steps = 18;
  Open();
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(store_->global_step(), 3);
  const std::vector<float> in_rounds = Values();
  plan_.mode = Mode::kHogwild;
  plan_.mode.number = 0;
  options_.push_every = 6;
  Open();
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(in_rounds, ::testing::Pointwise(::testing::FloatNear(1e-6F), Values()));
}

TEST_F(PushEveryTest, CountsLocalStepsByTheBatchAndGlobalStepsByThePush) {
  options_.local_steps = 8;
  std::vector<std::int64_t> local, global;
  std::vector<int> gradients;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  hook.on_step = [&](const StepReport& step) {
    EXPECT_TRUE(step.outcome.applied);
    local.push_back(step.local_step);
    global.push_back(step.outcome.global_step);
    gradients.push_back(step.outcome.gradients);
  };
  Open();
  const Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(local, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(global, ElementsAre(0, 0, 1, 1, 1, 2, 2, 3));
  EXPECT_THAT(gradients, ElementsAre(0, 0, 1, 0, 0, 1, 0, 1));
  EXPECT_EQ(result->local_steps, 8);
  EXPECT_EQ(counters().local_steps.load(), 8u);
  EXPECT_EQ(counters().pushes_ended.load(), 3u);
  EXPECT_EQ(counters().staleness.counts[0].load(), 3u);
}

TEST_F(PushEveryTest, GlobalStepLimitCountsPushes) {
  options_.train_steps = 5;
  Open();
  const Result<WorkerResult> result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->local_steps, 15);
  EXPECT_EQ(result->global_step, 5);
}

TEST_F(PushEveryTest, WhoIsAskedToLeaveGivesUpWhatWasNotPushedAndTheNextLifeDrawsItAgain) {
  options_.local_steps = 12;
  Open();
  ASSERT_TRUE(Run().ok());
  const std::vector<float> whole = Values();
  Open();
  bool asked = false;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  hook.on_step = [&](const StepReport& step) {
    if (step.local_step == 8) asked = true;
  };
  callbacks.check = [&](bool* leave) -> Status {
    *leave = asked;
    return {};
  };
  Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, LeaveReason::kAsked);
  EXPECT_EQ(result->local_steps, 6);
  EXPECT_EQ(store_->global_step(), 2);
  store_ = OpenStore(0);
  ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(seconds(5))).ok());
  result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->local_steps, 6);
  EXPECT_EQ(Values(), whole);
}

// Other workers push between the batches of one push. A copy shows none of it, and staleness counts
// from the one pull.
TEST_F(PushEveryTest, ComputesAllBatchesOfAPushOnOnePull) {
  plan_.num_workers = 2;
  options_.pull = PullMode::kCopy;
  options_.local_steps = 3;
  Open();
  const std::unique_ptr<ParameterStore> other = OpenStore(1);
  ASSERT_TRUE(other->WaitUntilInitialized(Deadline::After(seconds(5))).ok());
  std::vector<float> seen;
  std::uint64_t staleness = 0;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  callbacks.compute = [&](const Batch& batch, ParameterParts params, GradientParts gradients) {
    seen.push_back(params[0][0].data[0]);
    const auto backend = CreateCpuBackend().value();
    const auto model = Model::Create(config_, *backend, 100).value();
    return model->LossAndGradient(batch, params, gradients);
  };
  hook.on_step = [&](const StepReport& step) {
    staleness = step.outcome.staleness;
    if (step.local_step == 3) return;
    const ParamView view = other->Pull(PullMode::kView).value();
    const GradientBuffer gradient = other->LendGradient();
    for (VarId id = 0; id < plan_.variables.size(); ++id) {
      std::ranges::fill(gradient.values(id), 1.F);
    }
    ASSERT_TRUE(other->Push(gradient, view.stamp(), Deadline::After(seconds(5))).ok());
  };
  ASSERT_TRUE(Run(callbacks).ok());
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
  EXPECT_EQ(staleness, 2u);
  EXPECT_EQ(store_->global_step(), 3);
}

TEST_F(PushEveryTest, BatchThatIsNotFiniteIsSkippedAloneAndAnotherIsDrawn) {
  options_.local_steps = 6;
  options_.on_nan = OnNan::kSkip;
  Open();
  int computed = 0;
  std::vector<float> pushed;
  test::FunctionHook hook;
  WorkerCallbacks callbacks;
  callbacks.hooks = {&hook};
  callbacks.compute = [&](const Batch&, ParameterParts, GradientParts gradients) {
    ++computed;
    // The next life begins behind what was skipped, but not behind what waits to be pushed.
    EXPECT_EQ(counters().cursor_index.load(), computed == 1 ? 0u : computed < 6 ? 4u : 20u);
    for (std::size_t v = 0; v < gradients.size(); ++v) {
      for (const MutableRowPart& part : gradients[v]) {
        const std::size_t cols = layout_->table()[layout_->parts()[v][0]].elements / part.rows;
        std::fill_n(part.data, part.rows * cols, static_cast<float>(computed));
      }
    }
    // Of the first batch of a push, of one within it and of the last one.
    if (computed == 1 || computed == 3 || computed == 8) {
      gradients[2][0].data[1] = std::numeric_limits<float>::quiet_NaN();
    }
    return Result<BatchResult>(BatchResult{});
  };
  hook.on_step = [&](const StepReport& step) {
    if (step.outcome.gradients == 1) pushed.push_back(*arena_->shard(0).Gradient(0, 0));
  };
  const Result<WorkerResult> result = Run(callbacks);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->local_steps, 6);
  EXPECT_EQ(counters().skipped.load(), 3u);
  EXPECT_THAT(pushed, ElementsAre((2 + 4 + 5) / 3.F, (6 + 7 + 9) / 3.F));
  EXPECT_EQ(counters().cursor_epochs.load() * kTrainExamples + counters().cursor_index.load(),
            9u * 4);
}

TEST_F(PushEveryTest, SumThatIsNotFiniteIsNotPushed) {
  options_.train_steps = 1'000'000;
  WorkerCallbacks callbacks;
  callbacks.compute = [&](const Batch&, ParameterParts, GradientParts gradients) {
    for (const auto& parts : gradients) parts[0].data[0] = 3e38F;
    return Result<BatchResult>(BatchResult{});
  };
  Open();
  const std::vector<float> before = Values();
  EXPECT_THAT(Run(callbacks).status().message(),
              HasSubstr("is not finite at local step 3 (global step 0)"));
  Open();
  options_.on_nan = OnNan::kSkip;
  EXPECT_THAT(Run(callbacks).status().message(),
              HasSubstr(std::to_string(kMaxSkipsInARow) + " gradients in a row"));
  EXPECT_EQ(Values(), before);
  EXPECT_EQ(store_->global_step(), 0);
}

// In rounds a worker that is silent for the stall limit is evicted; one that adds up is not silent.
TEST_F(PushEveryTest, WorkerThatAddsUpForLongerThanTheStallLimitStays) {
  plan_.mode = Mode::kBarrier;
  plan_.num_workers = 2;
  stall_limit_ = milliseconds(500);
  options_.push_every = 40;
  options_.local_steps = 40;
  options_.slow_workers = {{1, milliseconds(30)}};
  Open();
  const std::unique_ptr<ParameterStore> other = OpenStore(1);
  auto slow = std::async(std::launch::async, [&] {
    const Status status = other->WaitUntilInitialized(Deadline::After(seconds(5)));
    return status.ok() ? RunWith(*other) : Result<WorkerResult>(status);
  });
  const Result<WorkerResult> fast = Run();
  ASSERT_TRUE(fast.ok()) << fast.status().message();
  const Result<WorkerResult> late = slow.get();
  ASSERT_TRUE(late.ok()) << late.status().message();
  EXPECT_EQ(late->local_steps, 40);
  EXPECT_EQ(store_->global_step(), 1);
  EXPECT_EQ(counters(1).local_steps.load(), 40u);
}

}  // namespace
}  // namespace passel
