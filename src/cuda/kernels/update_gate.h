// update_gate.h - opens the update that the backward products of a step make themselves.
//
// Behind the loss and before the first of them: the rate that they go by is that of the step, or 0
// if its loss is not finite, so that such a step changes nothing.

#pragma once

#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/cross_entropy.h"

namespace passel::cuda {

/// *rate = every loss is finite ? *asked : 0.
struct UpdateGateKernel {
  static constexpr unsigned kThreads = 32;

  const LossPart* parts = nullptr;  ///< device memory, as all below
  std::uint32_t part_count = 0;
  const float* asked = nullptr;
  float* rate = nullptr;

  struct Shared {
    std::uint32_t bad[kThreads];
  };
  struct Private {};
  Grid grid() const { return {1, 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 2; }

  PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private&) const {
    if (phase == 0) {
      std::uint32_t bad = 0;
      for (std::uint32_t i = at.thread; i < part_count; i += kThreads) {
        const double loss = parts[i].loss;
        bad |= loss - loss == 0 ? 0u : 1u;  // 0 for every finite number
      }
      shared.bad[at.thread] = bad;
    } else if (at.thread == 0) {
      std::uint32_t bad = 0;
      for (unsigned i = 0; i < kThreads; ++i) bad |= shared.bad[i];
      *rate = bad != 0 ? 0.f : *asked;
    }
  }
};

}  // namespace passel::cuda
