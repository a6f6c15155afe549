// atomics.cu - claims of blocks of memory, and additions to all parameters.

#include <cuda/atomic>
#include <stdexcept>

#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

using Word = unsigned long long;

constexpr unsigned kBlocks = 39;  // of 2048 floats, for the model's parameters
constexpr unsigned kThreads = 256;
constexpr unsigned kWordsApart = 16;  // no two claims in one line of a cache

// A compare-and-swap between two fences, for the claim and for the release.
struct Fenced {
  static __device__ Word Swap(Word* word, Word expected, Word desired) {
    __threadfence();
    const Word seen = atomicCAS(word, expected, desired);
    __threadfence();
    return seen;
  }
  static __device__ bool Claim(Word* word, Word holder) { return Swap(word, 0, holder) == 0; }
  static __device__ bool Release(Word* word, Word holder) {
    return Swap(word, holder, 0) == holder;
  }
};

// The same, ordered by the operation itself: acquire to claim, release to release.
struct Ordered {
  using Reference = cuda::atomic_ref<Word, cuda::thread_scope_device>;
  static __device__ bool Claim(Word* word, Word holder) {
    Word expected = 0;
    return Reference(*word).compare_exchange_strong(expected, holder, cuda::memory_order_acquire,
                                                    cuda::memory_order_relaxed);
  }
  static __device__ bool Release(Word* word, Word holder) {
    Word expected = holder;
    return Reference(*word).compare_exchange_strong(expected, 0, cuda::memory_order_release,
                                                    cuda::memory_order_relaxed);
  }
};

// As above, but released by a store, which cannot tell whether the claim was still held.
struct Stored : Ordered {
  static __device__ bool Release(Word* word, Word) {
    Reference(*word).store(0, cuda::memory_order_release);
    return true;
  }
};

// Each block claims a word of its own and releases it, `count` times. Between the two, each of its
// threads writes, as an update does.
template <typename Way>
__global__ void ClaimAndRelease(Word* words, float* values, unsigned* lost, int count) {
  Word* const word = words + blockIdx.x * kWordsApart;
  float* const value = values + blockIdx.x * blockDim.x + threadIdx.x;
  const Word holder = blockIdx.x + 1;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    if (threadIdx.x == 0 && !Way::Claim(word, holder)) atomicAdd(lost, 1u);
    __syncthreads();
    *value += 1;
    __syncthreads();
    if (threadIdx.x == 0 && !Way::Release(word, holder)) atomicAdd(lost, 1u);
  }
}

template <typename Way>
double ClaimTime(const Gpu& gpu) {
  const DeviceMemory words(kBlocks * kWordsApart * sizeof(Word));
  const DeviceMemory values(kBlocks * kThreads * sizeof(float));
  const DeviceMemory lost(sizeof(unsigned));
  const auto run = [&](int count) {
    return Median(200, 1, [&] {
      ClaimAndRelease<Way><<<kBlocks, kThreads, 0, gpu.stream>>>(
          words.As<Word>(), values.As<float>(), lost.As<unsigned>(), count);
      Wait(gpu.stream);
    });
  };
  const double few = run(10);
  const double time = (run(510) - few) / 500;
  if (Fetch(lost.As<unsigned>()) != 0) throw std::runtime_error("a claim was lost");
  return time;
}

__global__ void AddQuads(float* to, std::size_t quads) {
  const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= quads) return;
#if __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4*>(to) + i, make_float4(1, 1, 1, 1));
#else
  for (int lane = 0; lane < 4; ++lane) atomicAdd(to + 4 * i + lane, 1.f);
#endif
}

constexpr std::size_t kQuads = kFloats / 4;

void LaunchAdd(cudaStream_t stream, float* to) {
  AddQuads<<<static_cast<unsigned>((kQuads + 255) / 256), 256, 0, stream>>>(to, kQuads);
}

void HundredAdditions(cudaStream_t stream, float* to) {
  for (int i = 0; i < 100; ++i) LaunchAdd(stream, to);
}

}  // namespace

void MeasureClaims(const Gpu& gpu) {
  Measure("claim and release of a block of memory, compare-and-swaps between fences", nullptr,
          [&] { return ClaimTime<Fenced>(gpu); });
  Measure("the same, compare-and-swaps that acquire and release", nullptr,
          [&] { return ClaimTime<Ordered>(gpu); });
  Measure("the same, released by a store", nullptr, [&] { return ClaimTime<Stored>(gpu); });
}

void MeasureAdditions(const Gpu& gpu) {
  Measure("vector atomic additions to 79,510 floats, one kernel after another", "2-3 us", [&] {
    const DeviceMemory values(kBytes);
    const Graph additions(gpu.stream, [&] { HundredAdditions(gpu.stream, values.As<float>()); });
    return Median(200, 100, [&] { additions.Run(gpu.stream); });
  });
}

}  // namespace gpu_micro
