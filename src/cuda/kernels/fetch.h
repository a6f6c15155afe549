// fetch.h - copies words out of memory of another GPU, which others change meanwhile.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/atomics.h"

namespace passel::cuda {

/// to = from. Each word is whole, whoever writes it meanwhile, and is read where it lies, never out
/// of a cache of an earlier launch (memory order: relaxed, at system scope). Bits stay as they are.
struct FetchKernel {
  static constexpr unsigned kThreads = 256;
  static constexpr Scope kScope = Scope::kSystem;

  std::uint32_t* to = nullptr;          ///< (count), memory of this GPU
  const std::uint32_t* from = nullptr;  ///< (count), memory of any GPU that this one reaches
  std::size_t count = 0;                ///< words
  bool quads = false;                   ///< both are 16-byte aligned: see MakeFetch()

  struct Shared {};
  struct Private {};
  Grid grid() const { return {Blocks(count, std::size_t{4} * kThreads), 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 1; }

  PASSEL_KERNEL void Phase(unsigned, ThreadPlace at, Shared&, Private&) const {
    const std::size_t first = (std::size_t{at.block_x} * kThreads + at.thread) * std::size_t{4};
    if (quads && first + 4 <= count) {
      FetchFour(to + first, from + first);
    } else {
      const std::size_t end = first + 4 < count ? first + 4 : count;
      for (std::size_t i = first; i < end; ++i) to[i] = Fetch(from + i);
    }
  }

 private:
  static PASSEL_KERNEL std::uint32_t Fetch(const std::uint32_t* word) {
#if defined(__CUDA_ARCH__)
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
  }
  // Four loads in one; each of the four words is whole.
  static PASSEL_KERNEL void FetchFour(std::uint32_t* four, const std::uint32_t* words) {
#if defined(__CUDA_ARCH__)
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(words)
                 : "memory");
    *reinterpret_cast<uint4*>(four) = v;
#else
    for (unsigned j = 0; j < 4; ++j) four[j] = Fetch(words + j);
#endif
  }
};

/// Fetches `bytes`, whole words. REQUIRES: both are 4-byte aligned, and do not overlap.
inline FetchKernel MakeFetch(void* to, const void* from, std::size_t bytes) {
  FetchKernel kernel;
  kernel.to = static_cast<std::uint32_t*>(to);
  kernel.from = static_cast<const std::uint32_t*>(from);
  kernel.count = bytes / sizeof(std::uint32_t);
  kernel.quads = reinterpret_cast<std::uintptr_t>(to) % 16 == 0 &&
                 reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  return kernel;
}

}  // namespace passel::cuda
