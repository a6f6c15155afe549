// signal.h - tells the host that everything before it in the plan is done.

#pragma once

#include <cstdint>

#include "cuda/kernel.h"

namespace passel::cuda {

/// Writes `*number` to `*flag`, which is pinned host memory, behind everything that its block has
/// seen written (memory order: release, at system scope). The host waits for it with an acquire.
struct SignalKernel {
  const std::uint64_t* number = nullptr;  ///< device memory
  std::uint64_t* flag = nullptr;

  struct Shared {};
  struct Private {};
  Grid grid() const { return {1, 1, 1}; }
  PASSEL_KERNEL unsigned phases() const { return 1; }
  PASSEL_KERNEL void Phase(unsigned, ThreadPlace, Shared&, Private&) const {
#if defined(__CUDA_ARCH__)
    __threadfence_system();
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(*number) : "memory");
#else
    __atomic_store_n(flag, *number, __ATOMIC_RELEASE);
#endif
  }
};

}  // namespace passel::cuda
