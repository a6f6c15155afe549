// checkpoint_description.h - what is in a checkpoint or a saved model.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "job/stored_tensors.h"

namespace passel::job {

struct TensorSummary {
  std::string name;
  std::vector<std::int64_t> shape;
  double least = 0, mean = 0, most = 0, norm = 0;  ///< of the finite values; norm: Euclidean
  std::uint64_t not_finite = 0;
};

struct StoredDescription {
  std::string name;
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  Json words;  ///< StoredTensors::Words()
  std::vector<TensorSummary> tensors;
};

/// Reads all of it. Errors: those of reading.
Result<StoredDescription> Describe(const StoredTensors& stored);
/// Of the settings those that are not the default.
std::string ToText(const StoredDescription& description);
Json ToJson(const StoredDescription& description);

/// "784x100"
std::string ShapeText(const std::vector<std::int64_t>& shape);

}  // namespace passel::job
