// cold_kernels.cu - what it costs that the code of a kernel is not in the instruction cache.

#include <limits>

#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr int kKernels = 10;
// Of 16 bytes each, so that a kernel is as long as one of a step is, and runs for about 1 us.
constexpr int kRounds = 128;
constexpr int kInRound = 8;

// Straight through 1024 instructions, each with a constant of its own, so that no two kernels are
// one. Products and sums of floats cannot be rearranged, and `values` is not known to the compiler.
// Eight chains, so that an instruction seldom waits for the one before it.
template <int kSeed>
__global__ void LongCode(float* values) {
  float v[kInRound];
#pragma unroll
  for (int i = 0; i < kInRound; ++i) v[i] = values[i];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
#pragma unroll
    for (int i = 0; i < kInRound; ++i) {
      const float factor = 1.f + static_cast<float>(round * kKernels + kSeed) / 65536.f;
      v[i] = __fmaf_rn(v[i], factor, v[(i + 3) % kInRound]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kInRound; ++i) sum += v[i];
  if (sum == 12345.5f) values[0] = sum;
}

using Kernel = void (*)(float*);
constexpr Kernel kLong[kKernels] = {LongCode<0>, LongCode<1>, LongCode<2>, LongCode<3>,
                                    LongCode<4>, LongCode<5>, LongCode<6>, LongCode<7>,
                                    LongCode<8>, LongCode<9>};

}  // namespace

void MeasureColdKernels(const Gpu& gpu) {
  // One warp on each multiprocessor, since each has caches of its own.
  const auto graph_time = [&](int different) {
    const DeviceMemory values(64);
    const Graph graph(gpu.stream, [&] {
      for (int i = 0; i < kKernels; ++i) {
        kLong[i % different]<<<static_cast<unsigned>(gpu.multiprocessors), 32, 0, gpu.stream>>>(
            values.As<float>());
      }
    });
    return Median(2000, kKernels, [&] { graph.Run(gpu.stream); });
  };
  double warm = std::numeric_limits<double>::quiet_NaN();
  Measure("kernel with 16 KB of code, one of ten times the same in a graph", nullptr,
          [&] { return warm = graph_time(1); });
  Measure("what it takes longer if two such kernels take turns", nullptr,
          [&] { return graph_time(2) - Known(warm); });
  Measure("what it takes longer if five such kernels (80 KB) take turns", nullptr,
          [&] { return graph_time(5) - Known(warm); });
  Measure("what it takes longer if all ten kernels (160 KB) are different", nullptr,
          [&] { return graph_time(kKernels) - Known(warm); });
}

}  // namespace gpu_micro
