// model.h - forward and backward pass of softmax regression and of an MLP on a Backend.
//
// A Model owns its activations, never its parameters: those stay where the caller keeps them (a
// parameter server's memory, say), and gradients are written where the caller wants them. Neither
// is copied. A variable may lie in several parts, by rows, each in memory of its own:
//
//   hid_w (784, 100)    first_row 0    +-----------+  server 0
//                                      | 392 x 100 |
//                       first_row 392  +-----------+  server 1
//                                      | 392 x 100 |
//                                      +-----------+
//
// Threads    One thread at a time, the backend's.
// Errors     The backend's. Parts that do not cover their variable, batches above the maximum and
//            indices or labels out of range are bugs of the caller and stop the program.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/row_parts.h"
#include "nn/model_config.h"

namespace passel {

/// Some of the examples, by their row.
struct Batch {
  Examples from;                           ///< backend memory
  std::span<const std::uint32_t> indices;  ///< host memory; each < from.rows
};

/// What Evaluate() predicts where the logits say nothing.
inline constexpr std::uint16_t kNoClass = 0xffff;

struct Evaluation {
  double loss_sum = 0;  ///< over the examples, whatever the configured reduction
  std::size_t correct = 0;
};

class Model {
 public:
  /// Reserves activations for up to `max_batch` examples at a time. `backend` must outlive the
  /// model. Errors: kInvalidArgument from Validate() or for max_batch outside [1, 2^24];
  /// kResourceExhausted.
  static Result<std::unique_ptr<Model>> Create(const ModelConfig& config, Backend& backend,
                                               std::size_t max_batch);

  /// Bytes of memory that such a model reserves.
  static std::size_t ActivationBytes(const ModelConfig& config, std::size_t max_batch);

  const ModelConfig& config() const { return config_; }
  const std::vector<VariableSpec>& variables() const { return variables_; }
  std::size_t max_batch() const { return max_batch_; }

  /// Loss of the batch at `params`, and dL/dw into `gradients`: every element is overwritten,
  /// nothing else is touched. For LossReduction::kMean both are divided by the size of this batch.
  /// A loss or gradient that is not finite is returned as it is: the caller decides.
  /// REQUIRES: 1 <= batch.indices.size() <= max_batch().
  Result<BatchResult> LossAndGradient(const Batch& batch, ParameterParts params,
                                      GradientParts gradients);

  /// Loss and hits over rows [first, first + count) of `examples`. `predicted`, unless empty, gets
  /// the class of each, the first largest logit: the label where there is a hit. kNoClass where a
  /// logit is NaN or the largest infinite.
  /// REQUIRES: predicted is empty or of size `count`.
  Result<Evaluation> Evaluate(const Examples& examples, std::size_t first, std::size_t count,
                              ParameterParts params, std::span<std::uint16_t> predicted = {});

  /// Class probabilities of the batch, (batch, classes), into host memory. Labels are not read.
  /// REQUIRES: 1 <= batch.indices.size() <= max_batch(); probabilities of that size.
  Status Predict(const Batch& batch, ParameterParts params, std::span<float> probabilities);

 private:
  Model(const ModelConfig& config, Backend& backend, std::size_t max_batch);

  Status AllocateActivations();
  std::size_t layers() const { return variables_.size() / 2; }
  std::size_t inputs_of(std::size_t layer) const { return variables_[2 * layer].rows(); }
  std::size_t outputs_of(std::size_t layer) const { return variables_[2 * layer].cols(); }
  /// Values that enter a layer: the gathered inputs, or what the layer before gave. (batch, width)
  Matrix InputOf(std::size_t layer, std::size_t batch) const;
  Matrix Logits(std::size_t batch) const;
  /// dL/d(output of hidden layer), (batch, width). Two buffers take turns.
  Matrix DeltaOf(std::size_t layer, std::size_t batch) const;

  /// Gathers and runs all layers; leaves the logits.
  void Forward(const Batch& batch, ParameterParts params, bool labelled);
  void Backward(std::size_t batch, ParameterParts params, GradientParts gradients);

  const ModelConfig config_;
  Backend& backend_;
  const std::size_t max_batch_;
  const std::vector<VariableSpec> variables_;

  Backend::Memory memory_;          // all of the below
  std::vector<Matrix> inputs_;      // per layer: (max_batch, inputs_of(layer))
  Matrix logits_;                   // (max_batch, classes), dense; becomes dL/dlogits
  float* delta_[2] = {};            // each max_batch rows of the widest hidden layer
  std::uint8_t* labels_ = nullptr;  // (max_batch)
};

}  // namespace passel
