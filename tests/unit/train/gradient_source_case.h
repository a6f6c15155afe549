// gradient_source_case.h - one worker that trains with a StepEngine: the CPU's model behind the
// interface. Like a GPU it reads values and writes gradients as late as it may.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "compute/cpu_backend.h"
#include "data/digits.h"
#include "store/open_store.h"
#include "support/function_hook.h"
#include "support/temp_dir.h"
#include "train/gradient_source.h"

namespace passel {

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

}  // namespace passel
