// relu_mask.h - the gradient behind a ReLU, where no product of ours could do it on its way out.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"

namespace passel::cuda {

/// d[b, j] = 0 where h[b, j] <= 0.
struct ReluMaskKernel {
  static constexpr unsigned kThreads = 256;

  const float* h = nullptr;  ///< (rows, cols)
  std::size_t ldh = 0;
  float* d = nullptr;  ///< (rows, cols)
  std::size_t ldd = 0;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;

  struct Shared {};
  struct Private {};
  Grid grid() const { return {Blocks(std::size_t{rows} * cols, kThreads), 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 1; }
  PASSEL_KERNEL void Phase(unsigned, ThreadPlace at, Shared&, Private&) const {
    const std::size_t i = std::size_t{at.block_x} * kThreads + at.thread;
    if (i >= std::size_t{rows} * cols) return;
    const std::size_t b = i / cols, j = i % cols;
    if (h[b * ldh + j] <= 0) d[b * ldd + j] = 0;
  }
};

}  // namespace passel::cuda
