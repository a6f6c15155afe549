// model_config.h - which model is trained: its shape, its loss, its variables and their first
// values.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace passel {

enum class ModelKind : std::uint8_t {
  kMlp,      ///< hidden layers with ReLU, then softmax
  kSoftmax,  ///< softmax regression: no hidden layer
  kOwn,      ///< a program's own: passel knows its variables alone
};

/// How the loss of a batch is made of the losses of its examples.
enum class LossReduction : std::uint8_t { kSum, kMean };

/// One trainable tensor (float32, row-major). A scalar is one row.
struct VariableSpec {
  std::string name;
  std::vector<std::int64_t> shape;  ///< passel's models: (rows) or (rows, columns)

  std::size_t rows() const { return shape.empty() ? 1 : static_cast<std::size_t>(shape[0]); }
  std::size_t cols() const {
    std::size_t columns = 1;
    for (std::size_t d = 1; d < shape.size(); ++d) columns *= static_cast<std::size_t>(shape[d]);
    return columns;
  }
  std::size_t elements() const { return rows() * cols(); }
};

struct ModelConfig {
  ModelKind kind = ModelKind::kMlp;
  std::size_t inputs = 0;           ///< pixels of an example; from the data
  std::size_t classes = 0;          ///< from the data
  std::vector<std::size_t> hidden;  ///< width of each hidden layer, first one first
  LossReduction loss = LossReduction::kSum;
  /// true: the loss of an example is -log(clip(p, 1e-10, 1)), p being the softmax probability of
  /// its class; the gradient is exactly 0 where p < 1e-10. false: -log(p), computed stably.
  bool clip = true;
  std::uint64_t seed = 0;               ///< of the first values
  std::vector<VariableSpec> variables;  ///< kOwn, which has nothing else

  /// Errors: kInvalidArgument, naming the setting, its value and its range.
  Status Validate() const;
};

/// The reference programs' settings, without the sizes that come from the data.
/// kMlp: one hidden layer of 100, sum of the clipped losses. kSoftmax: mean of the stable losses.
ModelConfig DefaultModelConfig(ModelKind kind);

/// "mlp" or "softmax". Errors: kInvalidArgument.
Result<ModelKind> ParseModelKind(std::string_view text);
/// "sum" or "mean". Errors: kInvalidArgument.
Result<LossReduction> ParseLossReduction(std::string_view text);
/// "100" or "256,128". Errors: kInvalidArgument for anything but widths in range, comma separated.
Result<std::vector<std::size_t>> ParseHiddenUnits(std::string_view text);

inline constexpr std::size_t kMaxWidth = std::size_t{1} << 24;  ///< of any layer and the input
inline constexpr std::size_t kMaxClasses = 256;                 ///< labels are one byte
inline constexpr std::size_t kMaxLayers = 1024;                 ///< hidden layers

/// In creation order. One hidden layer: hid_w (inputs, H), hid_b (H), sm_w (H, classes), sm_b
/// (classes); further ones are hid2_w, hid2_b, ... before sm_w. Softmax regression: w (inputs,
/// classes), b (classes). REQUIRES: config.Validate().ok().
std::vector<VariableSpec> ModelVariables(const ModelConfig& config);

/// Writes the first values of rows [first_row, first_row + out.size() / columns) of a variable.
/// MLP: weights are normal with standard deviation 1 / sqrt(rows of the weights), redrawn beyond
/// two of them; biases are 0. Softmax regression: everything is standard normal.
/// A value depends on the seed, the variable and its place alone, so that a variable gets the same
/// numbers in one piece and in parts, under any mode and any number of servers.
/// REQUIRES: config.Validate().ok(), and not kOwn; whole rows that exist.
void InitializeVariable(const ModelConfig& config, std::size_t variable, std::size_t first_row,
                        std::span<float> out);

}  // namespace passel
