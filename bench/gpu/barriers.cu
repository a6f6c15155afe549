// barriers.cu - barriers of a cluster.

#include <string>

#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr unsigned kThreads = 256;

__global__ void ClusterBarriers(int count) {
#if __CUDA_ARCH__ >= 900
  // .aligned: all threads of a warp come together, which cooperative groups do not promise.
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n\t"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
  }
#else
  static_cast<void>(count);
#endif
}

// One cluster of `blocks` blocks.
double ClusterBarrierTime(const Gpu& gpu, unsigned blocks) {
  const auto* const kernel = reinterpret_cast<const void*>(&ClusterBarriers);
  NeedsCapability9(gpu, kernel);
  constexpr unsigned kEverywhere = 8;  // more than these not every card takes
  if (blocks > kEverywhere) {
    TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(blocks);
  launch.blockDim = dim3(kThreads);
  launch.stream = gpu.stream;
  launch.attrs = &attribute;
  launch.numAttrs = 1;
  int clusters = 0;
  const cudaError_t fits = cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch);
  if (fits == cudaErrorInvalidClusterSize || (fits == cudaSuccess && clusters < 1)) {
    static_cast<void>(cudaGetLastError());
    throw NotOffered("no cluster of " + std::to_string(blocks) + " blocks fits here");
  }
  Try(fits, "cudaOccupancyMaxActiveClusters");
  const auto run = [&](int count) {
    void* arguments[] = {&count};
    return Median(500, 1, [&] {
      TRY(cudaLaunchKernelExC(&launch, kernel, arguments));
      Wait(gpu.stream);
    });
  };
  const double few = run(10);
  return (run(1010) - few) / 1000;
}

}  // namespace

void MeasureBarriers(const Gpu& gpu) {
  Measure("barrier of a cluster of 8 blocks", "0.25 us",
          [&] { return ClusterBarrierTime(gpu, 8); });
  Measure("barrier of a cluster of 16 blocks", "0.25 us",
          [&] { return ClusterBarrierTime(gpu, 16); });
}

}  // namespace gpu_micro
