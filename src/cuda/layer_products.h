// layer_products.h - what computes the products of each layer, and the words for it.
//
// Large layers are cuBLASLt's (gemm_choice.h). Where that is missing, kernels of our own compute
// them too, more slowly.

#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compute/step_engine.h"
#include "cuda/device.h"

namespace passel::cuda {

/// True if cuBLASLt computes this layer; else kernels of our own do.
bool LibraryComputes(const StepEngineOptions& options, std::size_t layer);

/// Variables are cut into parts, some of which may be empty: this one is not.
inline bool HasRows(const NetworkMemory::Part& part) { return part.rows != 0; }

/// True if this layer's forward product, and the one that applies its mask, are the library's: the
/// layer and the next one are large, and there is a next one.
bool CanKeepMask(const StepEngineOptions& options, std::size_t layer);

/// True if the library may sum up this layer's bias gradient: the layer is large, and the gradient
/// lies in one part.
bool CanSumBias(const StepEngineOptions& options, std::size_t layer);

/// Where a layer is for the library and `device` has none, `options->library` becomes false, and
/// `warn` gets a line with the layers and the remedy; may be empty. Errors: Device::HasLibrary().
Status DoWithoutMissingLibrary(Device& device, StepEngineOptions* options,
                               const std::function<void(std::string_view)>& warn);

/// Names the layers that are computed in float32 although `options.math` is another, since kernels
/// of our own compute them: a sentence for the user, or empty.
std::string FloatThoughNotAsked(const StepEngineOptions& options);

/// ", tf32 in layer 0, float32 in layers 1, 2"; empty if float32 was asked for.
std::string DescribeMath(const StepEngineOptions& options);

/// " (layers 0, 2 without cuBLASLt)", of those that are large and have to; else empty.
std::string DescribeMissingLibrary(const StepEngineOptions& options);

}  // namespace passel::cuda
