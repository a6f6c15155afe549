// gemm_choice.h - which code makes a product of a given size.

#pragma once

#include <cstddef>

#include "cuda/kernels.h"

namespace passel::cuda {

/// More weights than a megabyte holds, or more multiplications in a step than four microseconds of
/// a large GPU's float32 units are for cuBLASLt.
inline constexpr std::size_t kMostOwnWeights = std::size_t{1} << 18;
inline constexpr std::size_t kMostOwnMultiplications = std::size_t{1} << 27;

/// True if the products of a layer are for cuBLASLt: it loads in about a second and costs hundreds
/// of megabytes, so only where our own kernels would be far from what the GPU can do.
bool NeedsLibraryGemm(std::size_t batch, std::size_t inputs, std::size_t outputs);

/// One of our own kernels, for products of any size: the largest tile that still gives every second
/// multiprocessor of a large GPU a block.
AnyKernel ChooseGemm(const GemmArguments& arguments);

}  // namespace passel::cuda
