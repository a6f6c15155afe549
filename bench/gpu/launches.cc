// launches.cc - launches of kernels and of graphs, and several steps in one graph.

#include <limits>

#include "bench/gpu/kernels.h"
#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr int kStepNodes = 10;  // about as many as a step has
constexpr int kSteps = 16;

}  // namespace

void MeasureLaunches(const Gpu& gpu) {
  cudaStream_t const stream = gpu.stream;
  const auto empty_nodes = [&](int nodes) {
    return [stream, nodes] {
      for (int i = 0; i < nodes; ++i) LaunchEmpty(stream);
    };
  };
  Measure("launch and wait, empty kernel", "5 us", [&] {
    return Median(5000, 1, [&] {
      LaunchEmpty(stream);
      Wait(stream);
    });
  });
  double ten = std::numeric_limits<double>::quiet_NaN();
  Measure("graph of 10 empty nodes, launch and wait", "10-14 us", [&] {
    const Graph graph(stream, empty_nodes(kStepNodes));
    return ten = Median(5000, 1, [&] { graph.Run(stream); });
  });
  Measure("one dependent node of a graph", "1.2-2 us", [&] {
    const Graph graph(stream, empty_nodes(kStepNodes + 100));
    return (Median(2000, 1, [&] { graph.Run(stream); }) - Known(ten)) / 100;
  });
  Measure("graph of 10 empty nodes, each of 16 launched before one wait", nullptr, [&] {
    const Graph graph(stream, empty_nodes(kStepNodes));
    return Median(1000, kSteps, [&] {
      for (int i = 0; i < kSteps; ++i) graph.Launch(stream);
      Wait(stream);
    });
  });
  Measure("each 10 of the 160 empty nodes of one graph, launch and wait", nullptr, [&] {
    const Graph graph(stream, empty_nodes(kStepNodes * kSteps));
    return Median(1000, kSteps, [&] { graph.Run(stream); });
  });
}

}  // namespace gpu_micro
