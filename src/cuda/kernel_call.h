// kernel_call.h - a kernel as the CUDA runtime wants it, so that nvcc compiles one file only.

#pragma once

#include "cuda/kernels.h"

namespace passel::cuda {

struct KernelCall {
  const void* function = nullptr;  ///< RunKernel<K>, for cudaLaunchKernel() and its kin
  Grid grid;
  /// The kernel itself, the function's only argument. Points into what CallOf() was given.
  const void* kernel = nullptr;
};

/// REQUIRES: `kernel` outlives the result's use.
KernelCall CallOf(const AnyKernel& kernel);

}  // namespace passel::cuda
