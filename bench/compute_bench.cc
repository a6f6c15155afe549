// One worker's compute, model and optimizer, against plain loops that do the same.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/random.h"
#include "bench/plain_training.h"
#include "bench/suite.h"
#include "compute/cpu_backend.h"
#include "data/dataset.h"
#include "lab/processes.h"
#include "nn/model.h"
#include "optim/update_kernels.h"

namespace passel::bench {
namespace {

constexpr std::size_t kBatch = 100;
constexpr std::size_t kHidden = 100;
constexpr int kStepsOfTurn = 10;

// Model, gradients and optimizer on memory of their own, without a store.
class ProductTraining {
 public:
  static Result<std::unique_ptr<ProductTraining>> Create(const Dataset& data) {
    auto made = std::unique_ptr<ProductTraining>(new ProductTraining());
    ModelConfig config = DefaultModelConfig(ModelKind::kMlp);
    config.hidden = {kHidden};
    config.inputs = data.train().image_pixels;
    config.classes = data.num_classes();
    config.loss = LossReduction::kMean;
    config.seed = 1;
    PASSEL_ASSIGN_OR_RETURN(made->optimizer_, ParseOptimizer("adam"));
    PASSEL_ASSIGN_OR_RETURN(made->backend_, CreateCpuBackend());
    PASSEL_ASSIGN_OR_RETURN(made->model_, Model::Create(config, *made->backend_, 500));
    made->examples_ = {data.train().images.data(), data.train().labels.data(), data.train().size()};
    const std::vector<VariableSpec>& specs = made->model_->variables();
    std::size_t floats = 0;
    std::vector<std::size_t> at;
    for (const VariableSpec& v : specs) {
      at.push_back(floats);
      floats += (v.elements() + 15) / 16 * 16;
    }
    made->floats_ = floats;
    PASSEL_ASSIGN_OR_RETURN(made->memory_, made->backend_->Allocate(4 * floats * sizeof(float)));
    auto* base = static_cast<float*>(made->memory_.get());
    made->values_ = base;
    made->slots_[0] = base + floats;
    made->slots_[1] = base + 2 * floats;
    made->gradient_ = base + 3 * floats;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      float* values = base + at[i];
      InitializeVariable(config, i, 0, {values, specs[i].elements()});
      made->params_.push_back({{values, 0, specs[i].rows()}});
      made->gradients_.push_back({{made->gradient_ + at[i], 0, specs[i].rows()}});
    }
    return made;
  }

  Status Step(std::span<const std::uint32_t> indices) {
    PASSEL_RETURN_IF_ERROR(
        model_->LossAndGradient({examples_, indices}, params_, gradients_).status());
    Apply(Prepare(optimizer_, ++step_), values_, slots_, gradient_, floats_);
    return {};
  }
  const float* values(std::size_t variable) const { return params_[variable][0].data; }

 private:
  ProductTraining() = default;
  OptimizerConfig optimizer_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  Backend::Memory memory_;
  Examples examples_;
  std::size_t floats_ = 0;
  float* values_ = nullptr;
  float* slots_[kMaxSlots] = {};
  float* gradient_ = nullptr;
  std::vector<std::vector<RowPart>> params_;
  std::vector<std::vector<MutableRowPart>> gradients_;
  std::int64_t step_ = 0;
};

// Random batches without end.
class Batches {
 public:
  explicit Batches(std::size_t examples) : order_(examples) {
    Random random(1);
    for (std::size_t i = 0; i < examples; ++i) order_[i] = static_cast<std::uint32_t>(i);
    for (std::size_t i = examples; i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
  }
  std::span<const std::uint32_t> Next() {
    if (at_ + kBatch > order_.size()) at_ = 0;
    at_ += kBatch;
    return {order_.data() + at_ - kBatch, kBatch};
  }

 private:
  std::vector<std::uint32_t> order_;
  std::size_t at_ = 0;
};

// Both must hold the same values after the same steps, but for the order of sums.
Status Verify(const Dataset& data, ProductTraining& product, PlainTraining& plain,
              Batches& batches) {
  for (int step = 0; step < 5; ++step) {
    const std::span<const std::uint32_t> batch = batches.Next();
    PASSEL_RETURN_IF_ERROR(product.Step(batch));
    plain.Step(batch.data());
  }
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < data.train().image_pixels * kHidden; ++i) {
    const auto expected = static_cast<double>(plain.w1()[i]);
    const double error = static_cast<double>(product.values(0)[i]) - expected;
    difference += error * error;
    size += expected * expected;
  }
  if (difference <= 1e-6 * size) return {};
  return Internal(fmt::format("after 5 steps the model and the plain loops differ by {:.1e}",
                              std::sqrt(difference / size)));
}

struct ComputeLog {
  double product_us, plain_us;  // medians of a step
  std::size_t count;
  double us[20000];  // every step of the product
};

// Both in one process, in turns of a few steps, on the same batches.
Status RunBoth(const Dataset& data, bool flush, int turns, int warm_up, ComputeLog* log) {
  std::optional<FlushDenormals> flushing;
  if (flush) flushing.emplace();
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<ProductTraining> product,
                          ProductTraining::Create(data));
  PlainTraining plain(data.train().images.data(), data.train().labels.data(),
                      data.train().image_pixels, kHidden, data.num_classes(), kBatch);
  plain.SetValues(product->values(0), product->values(1), product->values(2), product->values(3));
  Batches batches(data.train().size());
  PASSEL_RETURN_IF_ERROR(Verify(data, *product, plain, batches));
  std::vector<double> product_us, plain_us;
  std::vector<std::vector<std::uint32_t>> of_turn(kStepsOfTurn);
  for (int turn = -warm_up; turn < turns; ++turn) {
    for (auto& batch : of_turn) {
      const std::span<const std::uint32_t> next = batches.Next();
      batch.assign(next.begin(), next.end());
    }
    // Who comes first finds the images farther away: they take turns.
    for (const bool first : {true, false}) {
      const bool is_product = first == (turn % 2 == 0);
      for (const auto& batch : of_turn) {
        const std::int64_t begin = MonotonicNs();
        if (is_product) {
          PASSEL_RETURN_IF_ERROR(product->Step(batch));
        } else {
          plain.Step(batch.data());
        }
        const double us = 1e-3 * static_cast<double>(MonotonicNs() - begin);
        if (turn >= 0) (is_product ? product_us : plain_us).push_back(us);
      }
    }
  }
  log->product_us = lab::Median(product_us);
  log->plain_us = lab::Median(plain_us);
  log->count = std::min(product_us.size(), std::size(log->us));
  std::copy_n(product_us.begin(), log->count, log->us);
  return {};
}

Status BenchCompute(benchmark::State& state, Suite& suite, bool flush, Row& row) {
  PASSEL_ASSIGN_OR_RETURN(const std::string dir, suite.DataDir());
  PASSEL_ASSIGN_OR_RETURN(const OwnedDataset data, OwnedDataset::Load(dir));
  const bool smoke = suite.settings().smoke;
  // Without the flag, moments sink into the subnormal range after some hundred steps.
  const int warm_up = smoke ? 0 : 60;
  const int turns = smoke ? 2 : 60;
  std::vector<double> measured, limit, all;
  for (auto _ : state) {
    if (lab::Interrupted()) return {};
    lab::SharedArray<ComputeLog> logs(1);
    PASSEL_RETURN_IF_ERROR(lab::RunProcesses(
        lab::OneCoreEach(1), Deadline::After(std::chrono::seconds(60)),
        [&](int, lab::Gate&) { return RunBoth(*data, flush, turns, warm_up, &logs[0]); }));
    const ComputeLog& log = logs[0];
    measured.push_back(1e6 / log.product_us);
    limit.push_back(1e6 / log.plain_us);
    all.insert(all.end(), log.us, log.us + log.count);
    state.SetIterationTime(1e-6 * log.product_us * static_cast<double>(log.count));
  }
  Compare(measured, limit, &row);
  const lab::Latency step = lab::Summarize(all);
  row.note = fmt::format("a step: p50 {:.0f}, p99 {:.0f}, p99.9 {:.0f}, max {:.0f} us of {}",
                         step.p50, step.p99, step.p999, step.maximum, step.samples);
  return {};
}

}  // namespace

void RegisterComputeBenchmarks(Suite& suite) {
  for (const bool flush : {true, false}) {
    Row row;
    row.what = fmt::format("one worker's compute, Adam, FTZ/DAZ {}", flush ? "on" : "off");
    row.unit = "steps/s";
    row.is_reference = true;
    row.target = flush ? RatioAtLeast(0.96) : NoTarget();
    suite.Register(fmt::format("BM_Compute/opt:adam/hidden:100/batch:100/flush:{}", flush ? 1 : 0),
                   row, suite.settings().Pairs(7),
                   [&suite, flush](benchmark::State& state, Row& found) {
                     return BenchCompute(state, suite, flush, found);
                   });
  }
}

}  // namespace passel::bench
