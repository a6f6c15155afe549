// nonfinite.h - is there a NaN or an infinity among these floats?

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/quad.h"

namespace passel::cuda {

/// found[block] = 1 if one of the block's floats is NaN or infinite, else 0. Runs beside the copy
/// of the gradient to the host, so it costs a step nothing.
struct NonFiniteKernel {
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kQuadsEach = 4;
  static constexpr unsigned kFloatsPerBlock = 4 * kQuadsEach * kThreads;

  const float* data = nullptr;  ///< 16-byte aligned
  std::size_t count = 0;
  std::uint32_t* found = nullptr;  ///< (grid().blocks_x)

  struct Shared {
    std::uint32_t of_thread[kThreads];
    std::uint32_t of_eight[kThreads / 8];
  };
  struct Private {};
  Grid grid() const { return {Blocks(count, kFloatsPerBlock), 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 3; }

  PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private&) const {
    if (phase == 0) {
      std::uint32_t seen = 0;
      PASSEL_UNROLL
      for (unsigned q = 0; q < kQuadsEach; ++q) {
        const std::size_t first =
            std::size_t{at.block_x} * kFloatsPerBlock + std::size_t{4} * (q * kThreads + at.thread);
        if (first + 4 <= count) {
          float v[4];
          LoadQuad(data + first, v);
          seen |= NonFinite(v[0]) | NonFinite(v[1]) | NonFinite(v[2]) | NonFinite(v[3]);
        } else {
          for (std::size_t i = first; i < count; ++i) seen |= NonFinite(data[i]);
        }
      }
      shared.of_thread[at.thread] = seen;
    } else if (phase == 1) {
      if (at.thread >= kThreads / 8) return;
      std::uint32_t seen = 0;
      for (unsigned i = 0; i < 8; ++i) seen |= shared.of_thread[8 * at.thread + i];
      shared.of_eight[at.thread] = seen;
    } else if (at.thread == 0) {
      std::uint32_t seen = 0;
      for (unsigned i = 0; i < kThreads / 8; ++i) seen |= shared.of_eight[i];
      found[at.block_x] = seen;
    }
  }

 private:
  // x - x is 0 for every finite x, and NaN for all others.
  static PASSEL_KERNEL std::uint32_t NonFinite(float x) { return x - x == 0 ? 0u : 1u; }
};

}  // namespace passel::cuda
