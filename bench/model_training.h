// model_training.h - model, gradients and optimizer on memory of their own, without a store.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "data/dataset.h"
#include "nn/model.h"
#include "optim/optimizer.h"

namespace passel::bench {

struct ModelTrainingOptions {
  std::vector<std::size_t> hidden = {100};
  std::string optimizer = "adam";
  int threads = 1;  ///< of the matrix library
  std::size_t max_batch = 500;
};

class ModelTraining {
 public:
  static Result<std::unique_ptr<ModelTraining>> Create(const Dataset& data,
                                                       const ModelTrainingOptions& options = {});

  Status Step(std::span<const std::uint32_t> indices);
  /// Its second half alone, with the gradient of the last step.
  void Update();
  const float* values(std::size_t variable) const { return params_[variable][0].data; }
  /// Parameters, each variable padded to a line.
  std::size_t floats() const { return floats_; }

 private:
  ModelTraining() = default;
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

/// Random batches without end.
class Batches {
 public:
  Batches(std::size_t examples, std::size_t batch);
  std::span<const std::uint32_t> Next();

 private:
  std::vector<std::uint32_t> order_;
  std::size_t batch_;
  std::size_t at_ = 0;
};

}  // namespace passel::bench
