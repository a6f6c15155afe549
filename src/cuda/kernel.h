// kernel.h - what a kernel is: code for one thread of a block, in phases, for GPU and CPU alike.
//
// A kernel is a trivially copyable struct of pointers and sizes with
//
//   static constexpr unsigned kThreads;     // most threads of a block, for which registers are
//                                           // rationed; without it, 1024
//   struct Shared { ... };                  // memory of one block, uninitialised
//   struct Private { ... };                 // what one thread keeps between phases, uninitialised
//   Grid grid() const;                      // host
//   PASSEL_KERNEL unsigned phases() const;  // the same for every block
//   PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private& mine) const;
//
// Between two phases all threads of a block wait for each other; within one, threads may run in any
// order, and blocks may at any time. On a GPU RunKernel() of kernel_call.cu is the loop over the
// phases with a barrier behind each. On a CPU EmulateKernel() (tests) runs the very same code, the
// threads of each phase in random order on poisoned memory: a missing barrier, an element that
// nobody writes and an index out of range show without a GPU.
//
// Numbers    Sums run in the order written, for each element in one thread or in a fixed tree, so
//            results do not depend on the order of threads. Kernels are compiled without
//            contraction (-fmad=false) where they share formulas with the CPU (optim/); products in
//            GEMMs are added by FusedMultiplyAdd(), which rounds once on both sides.

#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define PASSEL_KERNEL __host__ __device__ __forceinline__
#else
/// Always inlined: the emulator compiles the same code for several instruction sets.
#define PASSEL_KERNEL inline __attribute__((always_inline))
#endif

/// Before a loop of few, known turns over registers.
#if defined(__CUDA_ARCH__)
#define PASSEL_UNROLL _Pragma("unroll")
#else
#define PASSEL_UNROLL
#endif

namespace passel::cuda {

struct Grid {
  unsigned blocks_x = 1;
  unsigned blocks_y = 1;
  unsigned threads = 1;  ///< of a block, at most 1024
};

struct ThreadPlace {
  unsigned block_x;
  unsigned block_y;
  unsigned thread;
};

/// Blocks that hold `items` things, `each` of them apiece; at least one, since a grid has no less.
inline unsigned Blocks(std::size_t items, std::size_t each) {
  return items == 0 ? 1 : static_cast<unsigned>((items + each - 1) / each);
}

/// a * b + c, rounded once.
PASSEL_KERNEL float FusedMultiplyAdd(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// Neither NaN nor infinite: x - x is 0 for every finite x, and NaN for all others.
PASSEL_KERNEL bool IsFinite(float x) { return x - x == 0; }

}  // namespace passel::cuda
