// Training with a StepEngine: the gradients are those that the model itself computes, each batch is
// pushed once and in order, and no slot is used twice at a time. The engine here is the CPU's model
// behind the interface. Like a GPU it reads values and writes gradients as late as it may.

#include "train/gradient_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include "compute/cpu_backend.h"
#include "data/digits.h"
#include "optim/update_formulas.h"
#include "store/external_sweep.h"
#include "store/open_store.h"
#include "support/function_hook.h"
#include "support/temp_dir.h"

namespace passel {
namespace {

// Computes a step when it is waited for, or, with `eager`, when it is started.
class LateEngine final : public StepEngine {
 public:
  LateEngine(Model& model, Examples train, std::vector<std::vector<RowPart>> values,
             std::vector<std::vector<std::vector<MutableRowPart>>> slots)
      : model_(model), train_(train), values_(std::move(values)), slots_(std::move(slots)) {}

  int max_in_flight() const override { return 4; }
  Status Start(std::span<const std::uint32_t> indices, int slot) override {
    for (const Step& step : steps_) EXPECT_NE(step.slot, slot) << "a slot is under way twice";
    EXPECT_LT(static_cast<int>(steps_.size()), max_in_flight());
    steps_.push_back({{indices.begin(), indices.end()}, slot});
    most_under_way = std::max(most_under_way, steps_.size());
    used_slots |= 1U << slot;
    return start_status;
  }
  bool can_update() const override { return updates; }
  Status StartUpdate(std::span<const std::uint32_t> indices, int slot, float rate) override {
    const Status started = Start(indices, slot);
    steps_.back().rate = rate;
    return started;
  }
  LeftOut left_out() const override { return left_out_; }

  Result<BatchResult> Finish(Deadline deadline, bool* finite) override {
    EXPECT_FALSE(steps_.empty());
    if (stuck) {
      while (!deadline.Expired()) {
      }
      return DeadlineExceeded("stuck");
    }
    const Step step = steps_.front();
    steps_.pop_front();
    if (finished.size() == fail_at) return Internal("the fake device fell off its bus");
    auto& slot = slots_[static_cast<std::size_t>(step.slot)];
    PASSEL_ASSIGN_OR_RETURN(const BatchResult result,
                            model_.LossAndGradient({train_, step.indices}, values_, slot));
    if (finished.size() == nan_at) {
      slot[0][0].data[3] = std::numeric_limits<float>::quiet_NaN();
    }
    *finite = finished.size() != nan_at;
    finished.push_back(step.indices);
    if (step.rate) {
      ++updated;
      left_out_ = *finite ? LeftOut{} : LeftOut{3, 2};
      for (std::size_t v = 0; v < slot.size() && *finite; ++v) {
        for (std::size_t p = 0; p < slot[v].size(); ++p) {
          const std::size_t cols = v + 1 < slot.size() && v % 2 == 0 ? slot[v + 1][0].rows : 1;
          for (std::size_t i = 0; i < slot[v][p].rows * cols; ++i) {
            auto& value = const_cast<float&>(values_[v][p].data[i]);
            value -= *step.rate * slot[v][p].data[i];
          }
        }
      }
    }
    return result;
  }
  std::string Describe() const override { return "late"; }

  std::vector<std::vector<std::uint32_t>> finished;  // batches, in this order
  std::size_t most_under_way = 0;
  unsigned used_slots = 0;
  std::size_t fail_at = ~std::size_t{0};
  std::size_t nan_at = ~std::size_t{0};
  bool stuck = false;
  bool updates = false;     // can_update()
  std::size_t updated = 0;  // steps that made their update
  Status start_status;

 private:
  struct Step {
    std::vector<std::uint32_t> indices;
    int slot;
    std::optional<float> rate = {};  // of a step that updates
  };
  LeftOut left_out_;
  Model& model_;
  const Examples train_;
  const std::vector<std::vector<RowPart>> values_;
  std::vector<std::vector<std::vector<MutableRowPart>>> slots_;
  std::deque<Step> steps_;
};

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

class GradientSourceTest : public ::testing::Test {
 protected:
  static constexpr int kSlots = 3;

  void SetUp() override {
    const test::TempDir dir;
    ASSERT_TRUE(WriteGeneratedDigits(dir.path(), 300, 50, 1).ok());
    Result<OwnedDataset> loaded = OwnedDataset::Load(dir.path());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    data_ = std::make_unique<OwnedDataset>(std::move(*loaded));
    config_ = DefaultModelConfig(ModelKind::kMlp);
    config_.inputs = kDigitPixels;
    config_.classes = 10;
    config_.hidden = {7};
    options_.train_steps = 40;
    options_.batch_size = 10;
    options_.seed = 1;
    plan_.optimizer.kind = OptimizerKind::kAdam;
    plan_.optimizer.learning_rate = 0.01F;
    plan_.variables = PlaceModel(config_, 1, {}).value();
    plan_.gradient_slots = kSlots;
    backend_ = CreateCpuBackend().value();
    model_ = Model::Create(config_, *backend_, 100).value();
    Open();
  }

  void Open() {
    engine_.reset();
    store_.reset();
    arena_ = InProcessArena::Create(plan_).value();
    Reopen();
    ASSERT_TRUE(InitializeStore(config_, *layout_, *store_).ok());
    ASSERT_TRUE(store_->WaitUntilInitialized(Deadline::After(std::chrono::seconds(1))).ok());
    MakeEngine();
  }
  void Reopen() {
    store_ = arena_->Open(0, {}).value();
    layout_.emplace(ModelLayout::Make(config_, store_->variables()).value());
  }

  // The addresses that a worker names to an engine.
  void MakeEngine() {
    const ShardMemory& memory = arena_->shard(0);
    const float* const shard_values[] = {memory.values};
    std::vector<std::vector<RowPart>> values;
    layout_->Bind(shard_values, &values);
    scratch_.assign(memory.floats, 0.F);
    std::vector<std::vector<std::vector<MutableRowPart>>> slots;
    for (int slot = 0; slot <= kSlots; ++slot) {
      slots.push_back(PartsOf(slot < kSlots ? memory.Gradient(0, slot) : scratch_.data()));
    }
    const auto& train = (*data_)->train();
    engine_ = std::make_unique<LateEngine>(
        *model_, Examples{train.images.data(), train.labels.data(), train.size()},
        std::move(values), std::move(slots));
    use_ = {engine_.get(), kSlots, {std::span<const float>(scratch_)}, 0};
  }

  std::vector<std::vector<MutableRowPart>> PartsOf(float* base) const {
    std::vector<std::vector<MutableRowPart>> parts;
    for (const auto& ids : layout_->parts()) {
      parts.emplace_back();
      for (const VarId id : ids) {
        const VariableInfo& v = layout_->table()[id];
        parts.back().push_back({base + v.offset, static_cast<std::size_t>(v.first_row),
                                static_cast<std::size_t>(v.shape[0])});
      }
    }
    return parts;
  }

  Result<WorkerResult> Run(bool with_engine) {
    PASSEL_ASSIGN_OR_RETURN(const DataSplit split, SplitValidation(**data_, 0));
    return RunWorker(options_, callbacks_, *model_, *layout_, split, *store_,
                     with_engine ? use_ : EngineUse{});
  }

  std::vector<float> Values() const {
    const ShardMemory& memory = arena_->shard(0);
    return {memory.values, memory.values + memory.floats};
  }

  // What the samplers hand out, from the first batch on.
  std::vector<std::vector<std::uint32_t>> Batches(std::size_t count) {
    const WorkerCounters counters{};
    BatchSource source = BatchSource::Make(options_, (*data_)->train().size(), counters, 0).value();
    std::vector<std::vector<std::uint32_t>> batches;
    for (std::size_t i = 0; i < count; ++i) {
      const auto next = source.Next().value();
      batches.emplace_back(next.begin(), next.end());
    }
    return batches;
  }

  std::unique_ptr<OwnedDataset> data_;
  ModelConfig config_;
  WorkerOptions options_;
  test::FunctionHook hook_;
  WorkerCallbacks callbacks_{.hooks = {&hook_}};
  StorePlan plan_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<InProcessArena> arena_;
  std::unique_ptr<ParameterStore> store_;
  std::optional<ModelLayout> layout_;
  std::vector<float> scratch_;
  std::unique_ptr<LateEngine> engine_;
  EngineUse use_;
};

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
