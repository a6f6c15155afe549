// programmatic.cu - chains of dependent kernels whose edges let the next kernel begin early.

#include <stdexcept>

#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr int kShort = 10;
constexpr int kLong = 110;

__global__ void CountOne(unsigned* count) {
  if (threadIdx.x == 0) *count += 1;
}

// Lets the kernel behind it be launched at once, and waits itself for the one before.
__global__ void CountOneEarly(unsigned* count) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
  if (threadIdx.x == 0) *count += 1;
}

void LaunchEarly(cudaStream_t stream, unsigned* count) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(1);
  launch.blockDim = dim3(32);
  launch.stream = stream;
  launch.attrs = &attribute;
  launch.numAttrs = 1;
  void* arguments[] = {&count};
  TRY(cudaLaunchKernelExC(&launch, reinterpret_cast<const void*>(&CountOneEarly), arguments));
}

// The time of a graph of `nodes` such kernels in a row, launch and wait. They count: one that began
// before the one before it had written would be noticed.
double ChainTime(cudaStream_t stream, unsigned nodes, bool early) {
  DeviceMemory memory(64);
  auto* const count = memory.As<unsigned>();
  const auto record = [&] {
    for (unsigned i = 0; i < nodes; ++i) {
      if (early) {
        LaunchEarly(stream, count);
      } else {
        CountOne<<<1, 32, 0, stream>>>(count);
      }
    }
  };
  const Graph graph(stream, record, early ? Graph::Edges::kProgrammatic : Graph::Edges::kAny);
  memory.Clear();
  unsigned runs = 0;
  const double time = Median(2000, 1, [&] {
    graph.Run(stream);
    ++runs;
  });
  if (Fetch(count) != runs * nodes) throw std::runtime_error("a kernel did not wait for another");
  return time;
}

}  // namespace

void MeasureProgrammatic(const Gpu& gpu) {
  const auto node_time = [&](bool early) {
    return (ChainTime(gpu.stream, kLong, early) - ChainTime(gpu.stream, kShort, early)) /
           (kLong - kShort);
  };
  Measure("one node of a graph that adds to what the node before it left, ordinary edge",
          "1.2-2 us", [&] { return node_time(false); });
  Measure("the same, programmatic edge", "0.4-0.6 us", [&] {
    NeedsCapability9(gpu, reinterpret_cast<const void*>(&CountOneEarly));
    return node_time(true);
  });
}

}  // namespace gpu_micro
