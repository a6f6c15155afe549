// signal.h - tells the host that everything before it in the plan is done.

#pragma once

#include <cstdint>

#include "cuda/kernel.h"

namespace passel::cuda {

/// Stores to pinned host memory behind everything that this thread has written or seen written
/// (memory order: release, at system scope). The host waits for it with an acquire.
PASSEL_KERNEL void StoreReleaseSystem(std::uint64_t* flag, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  __threadfence_system();
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
#else
  __atomic_store_n(flag, value, __ATOMIC_RELEASE);
#endif
}

/// Writes `*number` to `*flag`, which is pinned host memory: see StoreReleaseSystem().
struct SignalKernel {
  const std::uint64_t* number = nullptr;  ///< device memory
  std::uint64_t* flag = nullptr;

  struct Shared {};
  struct Private {};
  Grid grid() const { return {1, 1, 1}; }
  PASSEL_KERNEL unsigned phases() const { return 1; }
  PASSEL_KERNEL void Phase(unsigned, ThreadPlace, Shared&, Private&) const {
    StoreReleaseSystem(flag, *number);
  }
};

}  // namespace passel::cuda
