// atomics.h - atomic operations on values and claims that several processes share, how far they
// reach, and the sign that a host waits for.
//
// Two atomic operations are one behind the other only if the scope of each holds the other's
// thread. So all processes that share an arena use the same scope: kGpu where all compute on the
// GPU that holds it, kSystem where one computes on another.

#pragma once

#include <cstdint>

#include "cuda/kernel.h"

#if !defined(__CUDACC__)
#include <atomic>
#endif

namespace passel::cuda {

enum class Scope : std::uint8_t {
  kGpu,     ///< threads of this GPU, of whichever process: they meet in its second-level cache
  kSystem,  ///< threads of other GPUs too, which reach the memory over NVLink
};

/// Sets `*word` from `expected` to `desired`; returns what was there. Memory order: acquire and
/// release, at the scope: what is read behind it comes from no older line of the first-level cache.
template <Scope kScope>
PASSEL_KERNEL std::uint64_t ExchangeIfEqual(std::uint64_t* word, std::uint64_t expected,
                                            std::uint64_t desired) {
#if defined(__CUDA_ARCH__)
  auto* const at = reinterpret_cast<unsigned long long*>(word);
  const auto from = static_cast<unsigned long long>(expected);
  const auto to = static_cast<unsigned long long>(desired);
  unsigned long long seen = 0;
  if constexpr (kScope == Scope::kSystem) {
    __threadfence_system();
    seen = atomicCAS_system(at, from, to);
    __threadfence_system();
  } else {
    __threadfence();
    seen = atomicCAS(at, from, to);
    __threadfence();
  }
  return seen;
#else
  __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
#endif
}

/// *value += difference. Memory order: relaxed, since the additions stand for themselves and the
/// end of the kernel orders them.
template <Scope kScope>
PASSEL_KERNEL void AddAtomically(float* value, float difference) {
#if defined(__CUDA_ARCH__)
  if constexpr (kScope == Scope::kSystem) {
    atomicAdd_system(value, difference);
  } else {
    atomicAdd(value, difference);
  }
#elif defined(__CUDACC__)
  *value += difference;  // the host half of a CUDA compilation; nobody calls it
#else
  std::atomic_ref<float>(*value).fetch_add(difference, std::memory_order_relaxed);
#endif
}

/// values[0..3] += difference[0..3], each as AddAtomically(); with one instruction from compute
/// capability 9.0 on. REQUIRES: `values` is 16-byte aligned.
template <Scope kScope>
PASSEL_KERNEL void AddFourAtomically(float* values, const float (&difference)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const float4 four = make_float4(difference[0], difference[1], difference[2], difference[3]);
  if constexpr (kScope == Scope::kSystem) {
    atomicAdd_system(reinterpret_cast<float4*>(values), four);
  } else {
    atomicAdd(reinterpret_cast<float4*>(values), four);
  }
#else
  PASSEL_UNROLL
  for (unsigned j = 0; j < 4; ++j) AddAtomically<kScope>(values + j, difference[j]);
#endif
}

/// *counter += more, at the scope of the GPU, relaxed.
PASSEL_KERNEL void CountAtomically(std::uint32_t* counter, std::uint32_t more) {
#if defined(__CUDA_ARCH__)
  atomicAdd(counter, more);
#elif defined(__CUDACC__)
  *counter += more;  // as above
#else
  std::atomic_ref<std::uint32_t>(*counter).fetch_add(more, std::memory_order_relaxed);
#endif
}

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

}  // namespace passel::cuda
