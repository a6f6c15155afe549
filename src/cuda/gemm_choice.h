// gemm_choice.h - which code makes a product of a given size.

#pragma once

#include <cstddef>

#include "cuda/kernels.h"

namespace passel::cuda {

/// True if the products of a layer are for cuBLASLt: it loads in about a second and costs hundreds
/// of megabytes, so only where our own kernels would be far from what the GPU can do.
bool NeedsLibraryGemm(std::size_t batch, std::size_t inputs, std::size_t outputs);

/// One of our own kernels: the largest tile that still gives every second multiprocessor of a large
/// GPU a block.
AnyKernel ChooseGemm(const GemmArguments& arguments);

}  // namespace passel::cuda
