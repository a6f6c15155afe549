#include "nn/model_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace passel {
namespace {

// Keeps the streams of first values apart from the samplers' streams of the same job seed.
constexpr std::uint64_t kInitSalt = 0x696e697469616c73u;  // "initials"

Status CheckRange(std::string_view what, std::size_t value, std::size_t low, std::size_t high) {
  if (value >= low && value <= high) return {};
  return InvalidArgument(fmt::format("{} is {}: it must be from {} to {}", what, value, low, high));
}

Status CheckOwn(const std::vector<VariableSpec>& variables) {
  if (variables.empty()) return InvalidArgument("a model has 1 or more variables, not 0");
  for (const VariableSpec& spec : variables) {
    for (const std::int64_t dimension : spec.shape) {
      if (dimension >= 1) continue;
      return InvalidArgument(fmt::format("a dimension of variable \"{}\" is {}, and not 1 or more",
                                         spec.name, dimension));
    }
  }
  return {};
}

}  // namespace

Status ModelConfig::Validate() const {
  if (kind == ModelKind::kOwn) return CheckOwn(variables);
  PASSEL_RETURN_IF_ERROR(CheckRange("the number of inputs", inputs, 1, kMaxWidth));
  PASSEL_RETURN_IF_ERROR(CheckRange("the number of classes", classes, 2, kMaxClasses));
  if (kind == ModelKind::kSoftmax) {
    if (hidden.empty()) return {};
    return InvalidArgument(fmt::format(
        "softmax regression has no hidden layer, but {} were given: drop --hidden_units or use "
        "--model mlp",
        hidden.size()));
  }
  PASSEL_RETURN_IF_ERROR(
      CheckRange("the number of layers in --hidden_units", hidden.size(), 1, kMaxLayers));
  for (const std::size_t width : hidden) {
    PASSEL_RETURN_IF_ERROR(CheckRange("a width in --hidden_units", width, 1, kMaxWidth));
  }
  return {};
}

ModelConfig DefaultModelConfig(ModelKind kind) {
  ModelConfig config;
  config.kind = kind;
  if (kind == ModelKind::kMlp) {
    config.hidden = {100};
  } else {
    config.loss = LossReduction::kMean;
    config.clip = false;
  }
  return config;
}

Result<ModelKind> ParseModelKind(std::string_view text) {
  if (text == "mlp") return ModelKind::kMlp;
  if (text == "softmax") return ModelKind::kSoftmax;
  return InvalidArgument(fmt::format("--model is '{}': use mlp or softmax", text));
}

Result<LossReduction> ParseLossReduction(std::string_view text) {
  if (text == "sum") return LossReduction::kSum;
  if (text == "mean") return LossReduction::kMean;
  return InvalidArgument(fmt::format("--loss is '{}': use sum or mean", text));
}

Result<std::vector<std::size_t>> ParseHiddenUnits(std::string_view text) {
  std::vector<std::size_t> widths;
  for (const char *at = text.data(), *const end = at + text.size();;) {
    std::size_t width = 0;
    const auto [stop, error] = std::from_chars(at, end, width);
    if (error != std::errc() || (stop != end && *stop != ',')) {
      return InvalidArgument(fmt::format(
          "--hidden_units is '{}': give one width per hidden layer, as in 100 or 256,128", text));
    }
    if (width < 1 || width > kMaxWidth) {
      return InvalidArgument(
          fmt::format("--hidden_units is '{}': a hidden layer has 1 to {} units, not {}: use, for "
                      "example, 100",
                      text, kMaxWidth, width));
    }
    widths.push_back(width);
    if (stop == end) return widths;
    at = stop + 1;
  }
}

std::vector<VariableSpec> ModelVariables(const ModelConfig& config) {
  if (config.kind == ModelKind::kOwn) return config.variables;
  std::vector<VariableSpec> variables;
  std::size_t rows = config.inputs;
  const auto add_layer = [&](const std::string& prefix, std::size_t cols) {
    const auto n = static_cast<std::int64_t>(cols);
    variables.push_back({prefix + "w", {static_cast<std::int64_t>(rows), n}});
    variables.push_back({prefix + "b", {n}});
    rows = cols;
  };
  for (std::size_t i = 0; i < config.hidden.size(); ++i) {
    add_layer(i == 0 ? "hid_" : fmt::format("hid{}_", i + 1), config.hidden[i]);
  }
  add_layer(config.kind == ModelKind::kMlp ? "sm_" : "", config.classes);
  return variables;
}

void InitializeVariable(const ModelConfig& config, std::size_t variable, std::size_t first_row,
                        std::span<float> out) {
  const std::vector<VariableSpec> variables = ModelVariables(config);
  PASSEL_CHECK(variable < variables.size(), "the model has no such variable");
  const VariableSpec& spec = variables[variable];
  const std::size_t cols = spec.cols();
  const std::size_t rows = out.size() / cols;
  PASSEL_CHECK(
      rows * cols == out.size() && first_row <= spec.rows() && rows <= spec.rows() - first_row,
      "first values are written in whole rows of the variable");
  const bool mlp = config.kind == ModelKind::kMlp;
  if (mlp && spec.shape.size() == 1) {
    std::fill(out.begin(), out.end(), 0.f);
    return;
  }
  const double stddev = mlp ? 1.0 / std::sqrt(static_cast<double>(spec.rows())) : 1.0;
  for (std::size_t row = 0; row < rows; ++row) {
    Random random(StreamSeed(Mix64(config.seed ^ kInitSalt), variable, first_row + row));
    for (float& value : out.subspan(row * cols, cols)) {
      value = static_cast<float>(stddev * (mlp ? random.TruncatedNormal() : random.Normal()));
    }
  }
}

}  // namespace passel
