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

/// Where a layer is for the library and `device` has none, `options->library` becomes false, and
/// `warn` gets a line with the layers and the remedy; may be empty. Errors: Device::HasLibrary().
Status DoWithoutMissingLibrary(Device& device, StepEngineOptions* options,
                               const std::function<void(std::string_view)>& warn);

/// Names the layers that are computed in float32 although `options.math` is another, since kernels
/// of our own compute them: a sentence for the user, or empty.
std::string FloatThoughNotAsked(const StepEngineOptions& options);

/// ", tf32 in layer 0, float32 in layers 1, 2"; empty if float32 was asked for.
std::string DescribeMath(const StepEngineOptions& options);

/// " and cuBLASLt (layers 0, 2)" or " (layers 0, 2 without cuBLASLt)", of those that are large;
/// empty if there are none.
std::string DescribeLibrary(const StepEngineOptions& options);

}  // namespace passel::cuda
