// safetensors_layout.h - what a safetensors file of given tensors looks like, before any data is
// there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/safetensors.h"

namespace passel {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

struct SafetensorsLayout {
  std::string prefix;                 ///< what the file begins with: N and the header
  std::vector<std::size_t> order;     ///< of the data, as indices of the tensors
  std::vector<std::uint64_t> begins;  ///< [tensors]: bytes from the begin of the file
  std::vector<std::uint64_t> sizes;   ///< [tensors]: bytes
};

/// The order is that of WriteSafetensors(). The length of `prefix` depends on the lengths of the
/// metadata, not on what they say. Errors: kInvalidArgument (something that the reader would
/// refuse).
Result<SafetensorsLayout> LayOutSafetensors(std::span<const TensorSpec> tensors,
                                            const SafetensorsMetadata& metadata);

}  // namespace passel
