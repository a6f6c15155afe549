#include "nn/model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/nvtx.h"

namespace passel {
namespace {

constexpr std::size_t kMaxBatch = std::size_t{1} << 24;
constexpr std::size_t kLineFloats = 16;  // 64 bytes

// Rows of activations start on cache lines.
std::size_t LeadingDimension(std::size_t cols) {
  return (cols + kLineFloats - 1) / kLineFloats * kLineFloats;
}

// Where everything lies, in floats from the start.
struct Activations {
  std::vector<std::size_t> inputs;  // per layer
  std::size_t logits = 0;
  std::size_t delta[2] = {};
  std::size_t labels = 0;
  std::size_t floats = 0;
};

// At most 1025 layers of 2^24 x 2^24 floats, twice: no overflow in 64 bits.
Activations PlaceActivations(const std::vector<VariableSpec>& variables, std::size_t max_batch) {
  const std::size_t layers = variables.size() / 2;
  Activations at;
  const auto reserve = [&](std::size_t count) {
    const std::size_t here = at.floats;
    at.floats += LeadingDimension(count);
    return here;
  };
  std::size_t widest = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const std::size_t ld = LeadingDimension(variables[2 * layer].rows());
    at.inputs.push_back(reserve(max_batch * ld));
    if (layer > 0) widest = std::max(widest, ld);
  }
  at.logits = reserve(max_batch * variables[2 * layers - 2].cols());
  // A delta buffer each for this layer and the one before; with one hidden layer the second would
  // never be used.
  at.delta[0] = reserve(max_batch * widest);
  at.delta[1] = reserve(layers > 2 ? max_batch * widest : 0);
  at.labels = reserve((max_batch + sizeof(float) - 1) / sizeof(float));
  return at;
}

// One comparison per part and step: cheap beside a product.
template <typename T>
void CheckParts(const std::vector<VariableSpec>& variables,
                std::span<const std::vector<BasicRowPart<T>>> parts) {
  PASSEL_CHECK(parts.size() == variables.size(), "every variable needs its parts");
  for (std::size_t i = 0; i < variables.size(); ++i) {
    std::size_t next = 0;
    for (const auto& part : parts[i]) {
      PASSEL_CHECK(part.first_row == next, "the parts of a variable follow one another");
      PASSEL_CHECK(part.data != nullptr || part.rows == 0, "a part needs memory");
      next += part.rows;
    }
    PASSEL_CHECK(next == variables[i].rows(), "the parts of a variable cover it");
  }
}

std::uint16_t FirstLargest(const float* logits, std::size_t classes) {
  std::size_t best = 0;
  for (std::size_t j = 0; j < classes; ++j) {
    if (std::isnan(logits[j])) return kNoClass;
    if (logits[j] > logits[best]) best = j;
  }
  return std::isfinite(logits[best]) ? static_cast<std::uint16_t>(best) : kNoClass;
}

}  // namespace

Result<std::unique_ptr<Model>> Model::Create(const ModelConfig& config, Backend& backend,
                                             std::size_t max_batch) {
  PASSEL_RETURN_IF_ERROR(config.Validate());
  if (max_batch < 1 || max_batch > kMaxBatch) {
    return InvalidArgument(
        fmt::format("the batch size is {}: it must be from 1 to {}", max_batch, kMaxBatch));
  }
  std::unique_ptr<Model> model(new Model(config, backend, max_batch));
  PASSEL_RETURN_IF_ERROR(model->AllocateActivations());
  return model;
}

Model::Model(const ModelConfig& config, Backend& backend, std::size_t max_batch)
    : config_(config),
      backend_(backend),
      max_batch_(max_batch),
      variables_(ModelVariables(config)) {}

std::size_t Model::ActivationBytes(const ModelConfig& config, std::size_t max_batch) {
  return PlaceActivations(ModelVariables(config), max_batch).floats * sizeof(float);
}

Status Model::AllocateActivations() {
  const Activations at = PlaceActivations(variables_, max_batch_);
  PASSEL_ASSIGN_OR_RETURN(memory_, backend_.Allocate(at.floats * sizeof(float)));
  float* const base = static_cast<float*>(memory_.get());
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    inputs_.emplace_back(base + at.inputs[layer], max_batch_, inputs_of(layer),
                         LeadingDimension(inputs_of(layer)));
  }
  logits_ = {base + at.logits, max_batch_, config_.classes, config_.classes};
  delta_[0] = base + at.delta[0];
  delta_[1] = base + at.delta[1];
  labels_ = reinterpret_cast<std::uint8_t*>(base + at.labels);
  return {};
}

Matrix Model::InputOf(std::size_t layer, std::size_t batch) const {
  Matrix m = inputs_[layer];
  m.rows = batch;
  return m;
}

Matrix Model::Logits(std::size_t batch) const {
  Matrix m = logits_;
  m.rows = batch;
  return m;
}

Matrix Model::DeltaOf(std::size_t layer, std::size_t batch) const {
  const std::size_t width = outputs_of(layer);
  return {delta_[layer % 2], batch, width, LeadingDimension(width)};
}

void Model::Forward(const Batch& batch, ParameterParts params, bool labelled) {
  const std::size_t size = batch.indices.size();
  PASSEL_CHECK(size >= 1 && size <= max_batch_, "the batch is empty or above the maximum");
  CheckParts(variables_, params);
  const auto examples = static_cast<std::int64_t>(size);
  {
    const nvtx::Range range(nvtx::Event::kGather, examples);
    backend_.Gather(batch.from, batch.indices, InputOf(0, size), labelled ? labels_ : nullptr);
  }
  const nvtx::Range range(nvtx::Event::kForward, examples);
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    const bool last = layer + 1 == layers();
    const Matrix x = InputOf(layer, size);
    const Matrix y = last ? Logits(size) : InputOf(layer + 1, size);
    float beta = 0;
    for (const RowPart& part : params[2 * layer]) {
      if (part.rows == 0) continue;
      const ConstMatrix w{part.data, part.rows, y.cols, y.cols};
      backend_.Gemm(Transpose::kNo, Transpose::kNo, x.Columns(part.first_row, part.rows), w, beta,
                    y);
      beta = 1;
    }
    for (const RowPart& part : params[2 * layer + 1]) {
      backend_.AddBias(part.data, last ? Activation::kNone : Activation::kRelu,
                       y.Columns(part.first_row, part.rows));
    }
  }
}

void Model::Backward(std::size_t size, ParameterParts params, GradientParts gradients) {
  Matrix dy = Logits(size);
  for (const MutableRowPart& part : gradients[variables_.size() - 1]) {
    backend_.ColumnSums(dy.Columns(part.first_row, part.rows), part.data);
  }
  for (std::size_t layer = layers(); layer-- > 0;) {
    const Matrix x = InputOf(layer, size);
    for (const MutableRowPart& part : gradients[2 * layer]) {
      if (part.rows == 0) continue;
      const Matrix dw{part.data, part.rows, dy.cols, dy.cols};
      backend_.Gemm(Transpose::kYes, Transpose::kNo, x.Columns(part.first_row, part.rows), dy, 0,
                    dw);
    }
    if (layer == 0) return;  // nothing needs the gradient of the pixels
    const Matrix dx = DeltaOf(layer - 1, size);
    for (const RowPart& part : params[2 * layer]) {
      if (part.rows == 0) continue;
      const ConstMatrix w{part.data, part.rows, dy.cols, dy.cols};
      backend_.Gemm(Transpose::kNo, Transpose::kYes, dy, w, 0,
                    dx.Columns(part.first_row, part.rows));
    }
    for (const MutableRowPart& part : gradients[2 * layer - 1]) {
      backend_.ReluBackward(ConstMatrix(x.Columns(part.first_row, part.rows)),
                            dx.Columns(part.first_row, part.rows), part.data);
    }
    dy = dx;
  }
}

Result<BatchResult> Model::LossAndGradient(const Batch& batch, ParameterParts params,
                                           GradientParts gradients) {
  CheckParts(variables_, gradients);
  Forward(batch, params, true);
  const std::size_t size = batch.indices.size();
  // The loss is its first link.
  const nvtx::Range range(nvtx::Event::kBackward, static_cast<std::int64_t>(size));
  const bool mean = config_.loss == LossReduction::kMean;
  BatchLoss loss;
  backend_.CrossEntropy({config_.clip, mean ? 1.f / static_cast<float>(size) : 1.f}, labels_,
                        Logits(size), &loss);
  Backward(size, params, gradients);
  PASSEL_RETURN_IF_ERROR(backend_.Finish());
  return BatchResult{mean ? loss.sum / static_cast<double>(size) : loss.sum, loss.correct};
}

Result<Evaluation> Model::Evaluate(const Examples& examples, std::size_t first, std::size_t count,
                                   ParameterParts params, std::span<std::uint16_t> predicted) {
  PASSEL_CHECK(first <= examples.rows && count <= examples.rows - first,
               "the rows to evaluate exist");
  PASSEL_CHECK(predicted.empty() || predicted.size() == count, "one class per example");
  Evaluation total;
  std::vector<float> logits(predicted.empty() ? 0 : std::min(count, max_batch_) * config_.classes);
  std::vector<std::uint32_t> indices(std::min(count, max_batch_));
  for (std::size_t done = 0; done < count;) {
    const std::size_t size = std::min(count - done, max_batch_);
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(first + done));
    Forward({examples, std::span(indices).first(size)}, params, true);
    if (!predicted.empty()) {
      backend_.CopyOut(logits.data(), logits_.data, size * config_.classes * sizeof(float));
      PASSEL_RETURN_IF_ERROR(backend_.Finish());  // before the loss takes their place
      for (std::size_t b = 0; b < size; ++b) {
        const float* row = logits.data() + b * config_.classes;
        predicted[done + b] = FirstLargest(row, config_.classes);
      }
    }
    BatchLoss loss;
    backend_.CrossEntropy({config_.clip, 1.f}, labels_, Logits(size), &loss);
    PASSEL_RETURN_IF_ERROR(backend_.Finish());
    total.loss_sum += loss.sum;
    total.correct += loss.correct;
    done += size;
  }
  return total;
}

Status Model::Predict(const Batch& batch, ParameterParts params, std::span<float> probabilities) {
  const std::size_t size = batch.indices.size();
  PASSEL_CHECK(probabilities.size() == size * config_.classes, "one probability per class");
  Forward(batch, params, false);
  backend_.Softmax(Logits(size));
  backend_.CopyOut(probabilities.data(), logits_.data, probabilities.size_bytes());
  return backend_.Finish();
}

}  // namespace passel
