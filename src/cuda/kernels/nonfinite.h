// nonfinite.h - how many NaNs and infinities are among these floats? For results of a library,
// which does not say; our own products count theirs as they write them (kernels/gemm.h).

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/atomics.h"
#include "cuda/kernels/quad.h"

namespace passel::cuda {

/// *found += floats that are NaN or infinite.
struct NonFiniteKernel {
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kQuadsEach = 4;
  static constexpr unsigned kFloatsPerBlock = 4 * kQuadsEach * kThreads;

  const float* data = nullptr;
  std::size_t count = 0;
  std::uint32_t* found = nullptr;
  bool quads = false;  ///< data is 16-byte aligned

  struct Shared {};
  struct Private {};
  Grid grid() const { return {Blocks(count, kFloatsPerBlock), 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 1; }

  PASSEL_KERNEL void Phase(unsigned, ThreadPlace at, Shared&, Private&) const {
    std::uint32_t seen = 0;
    PASSEL_UNROLL
    for (unsigned q = 0; q < kQuadsEach; ++q) {
      const std::size_t first =
          std::size_t{at.block_x} * kFloatsPerBlock + std::size_t{4} * (q * kThreads + at.thread);
      if (quads && first + 4 <= count) {
        float v[4];
        LoadQuad(data + first, v);
        PASSEL_UNROLL
        for (unsigned j = 0; j < 4; ++j) seen += IsFinite(v[j]) ? 0 : 1;
      } else {
        for (std::size_t i = first; i < first + 4 && i < count; ++i) {
          seen += IsFinite(data[i]) ? 0 : 1;
        }
      }
    }
    if (seen != 0) CountAtomically(found, seen);
  }
};

inline NonFiniteKernel MakeNonFinite(const float* data, std::size_t count, std::uint32_t* found) {
  return {data, count, found, QuadsAllowed(data, 0)};
}

}  // namespace passel::cuda
