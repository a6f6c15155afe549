// model_shape.h - which model variables belong to, told by their names and shapes alone: those of
// a file, or of a running job.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "nn/model_config.h"
#include "store/variable_table.h"

namespace passel {

/// Named shapes from anywhere.
struct NamedShapes {
  std::function<bool(const std::string& name)> has;
  /// The shape of a float32 variable of rank `rank`. Errors: in the caller's words, passed on.
  std::function<Result<std::vector<std::int64_t>>(const std::string& name, std::size_t rank)> of;
};

/// "w" makes softmax regression, "hid_w", "hid2_w" ... and "sm_w" an MLP; the loss and the seed are
/// defaults. Only these are looked at: compare ModelVariables() with the rest.
/// Errors: those of `shapes.of`; kInvalidArgument for shapes that no model has.
Result<ModelConfig> InferModel(const NamedShapes& shapes);

/// The model whose variables, whole or in parts, are those of `table`.
/// Errors: kInvalidArgument when they are no model of ours.
Result<ModelConfig> InferModel(const VariableTable& table);

}  // namespace passel
