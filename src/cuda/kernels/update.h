// update.h - the optimizer's update of values that lie in device memory.
//
// The arithmetic is that of the CPU (optim/update_formulas.h), element by element, so with
// contraction off the bits are the same. Spans are whole blocks of the arena: padding stays 0.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/atomics.h"
#include "cuda/kernels/quad.h"
#include "optim/update_formulas.h"

namespace passel::cuda {

/// values, slots = Rule(values, slots, gradient) for elements `first` to `first` + 3, those from
/// `count` on left alone. REQUIRES: first is a multiple of 4, the arrays are 16-byte aligned.
template <typename Rule>
PASSEL_KERNEL void UpdateFour(const Rule& rule, float* values,
                              float* const (&slots)[Rule::kSlots == 0 ? 1 : Rule::kSlots],
                              const float* gradient, std::size_t first, std::size_t count) {
  constexpr int kSlots = Rule::kSlots;
  if (first + 4 <= count) {
    float w[4], g[4], s[kSlots == 0 ? 1 : kSlots][4];
    LoadQuad(values + first, w);
    LoadQuad(gradient + first, g);
    PASSEL_UNROLL
    for (int i = 0; i < kSlots; ++i) LoadQuad(slots[i] + first, s[i]);
    PASSEL_UNROLL
    for (unsigned j = 0; j < 4; ++j) {
      if constexpr (kSlots == 0) {
        rule(w[j], g[j]);
      } else if constexpr (kSlots == 1) {
        rule(w[j], s[0][j], g[j]);
      } else if constexpr (kSlots == 2) {
        rule(w[j], s[0][j], s[1][j], g[j]);
      } else {
        rule(w[j], s[0][j], s[1][j], s[2][j], g[j]);
      }
    }
    StoreQuad(values + first, w);
    PASSEL_UNROLL
    for (int i = 0; i < kSlots; ++i) StoreQuad(slots[i] + first, s[i]);
  } else {
    for (std::size_t i = first; i < count; ++i) {
      if constexpr (kSlots == 0) {
        rule(values[i], gradient[i]);
      } else if constexpr (kSlots == 1) {
        rule(values[i], slots[0][i], gradient[i]);
      } else if constexpr (kSlots == 2) {
        rule(values[i], slots[0][i], slots[1][i], gradient[i]);
      } else {
        rule(values[i], slots[0][i], slots[1][i], slots[2][i], gradient[i]);
      }
    }
  }
}

/// values += -rate gradient, each element atomically at the scope: any number of writers at the
/// same time lose nothing. Four elements at once where the GPU can (compute capability 9.0 and
/// newer), which is still one addition per element. GPUs take subnormal numbers for 0 here.
template <Scope kOfValues = Scope::kGpu>
struct AtomicSgdKernel {
  static constexpr unsigned kThreads = 256;
  static constexpr Scope kScope = kOfValues;

  const StepScalars* scalars = nullptr;  ///< device memory
  float* values = nullptr;               ///< (count), 16-byte aligned
  const float* gradient = nullptr;       ///< (count), 16-byte aligned
  std::size_t count = 0;

  struct Shared {};
  struct Private {};
  Grid grid() const { return {Blocks(count, std::size_t{4} * kThreads), 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 1; }

  PASSEL_KERNEL void Phase(unsigned, ThreadPlace at, Shared&, Private&) const {
    const float rate = scalars->rate;
    const std::size_t first = (std::size_t{at.block_x} * kThreads + at.thread) * std::size_t{4};
    if (first + 4 <= count) {
      float g[4];
      LoadQuad(gradient + first, g);
      PASSEL_UNROLL
      for (unsigned j = 0; j < 4; ++j) g[j] = -(rate * g[j]);
      AddFourAtomically<kScope>(values + first, g);
    } else {
      for (std::size_t i = first; i < count; ++i) {
        AddAtomically<kScope>(values + i, -(rate * gradient[i]));
      }
    }
  }
};

}  // namespace passel::cuda
