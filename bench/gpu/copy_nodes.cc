// copy_nodes.cc - how little data goes between the host and a graph: by copies, by kernels that
// reach into host memory, and a flag.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "bench/gpu/kernels.h"
#include "bench/gpu/measure.h"
#include "bench/gpu/rows.h"

namespace gpu_micro {
namespace {

constexpr int kPairs = 50;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Floats from one order to the next.
constexpr std::size_t kStride = 128;
static_assert(kStride * sizeof(float) >= kOrderBytes);

// Orders of the host and an answer, and what the GPU has of both.
struct Orders {
  PinnedMemory order{kPairs * kStride * sizeof(float)}, answer{kOrderBytes};
  DeviceMemory device_order{kOrderBytes}, device_answer{kOrderBytes};
};

// The time of a graph that makes an answer of the order, launch and wait. The answer is looked at.
double AnswerTime(cudaStream_t stream, Orders* orders, const Graph& graph) {
  float number = 0;
  return Median(2000, 1, [&] {
    float& last = orders->order.As<float>()[kOrderBytes / sizeof(float) - 1];
    last = ++number;
    graph.Run(stream);
    if (orders->answer.As<volatile float>()[kOrderBytes / sizeof(float) - 1] != number + 1) {
      throw std::runtime_error("the answer is wrong");
    }
  });
}

}  // namespace

void MeasureCopyNodes(const Gpu& gpu) {
  cudaStream_t const stream = gpu.stream;
  double with_copies = kUnknown;
  Measure("graph of a copy of 464 B, a kernel and a copy back, launch and wait", nullptr, [&] {
    Orders orders;
    const Graph graph(stream, [&] {
      TRY(cudaMemcpyAsync(orders.device_order.As<void>(), orders.order.As<void>(), kOrderBytes,
                          cudaMemcpyHostToDevice, stream));
      LaunchAddOne(stream, orders.device_order.As<float>(), orders.device_answer.As<float>());
      TRY(cudaMemcpyAsync(orders.answer.As<void>(), orders.device_answer.As<void>(), kOrderBytes,
                          cudaMemcpyDeviceToHost, stream));
    });
    return with_copies = AnswerTime(stream, &orders, graph);
  });
  double without = kUnknown;
  Measure("graph of a kernel that reads and writes 464 B of host memory, launch and wait", nullptr,
          [&] {
            Orders orders;
            const Graph graph(stream, [&] {
              LaunchAddOne(stream, orders.order.As<float>(), orders.answer.As<float>());
            });
            return without = AnswerTime(stream, &orders, graph);
          });
  Measure("both copies of such a graph (the difference of the two rows above)", "6-8 us",
          [&] { return Known(with_copies) - Known(without); });

  // The same within a long graph, where the launch hides nothing. Each kernel has its own order,
  // which no cache holds from the one before.
  const auto long_graph = [&](Orders* orders, bool copies, bool from_host) {
    const Graph graph(stream, [&] {
      for (std::size_t i = 0; i < kPairs; ++i) {
        const float* const order = orders->order.As<float>() + i * kStride;
        auto* const device_order = orders->device_order.As<float>();
        if (copies) {
          TRY(cudaMemcpyAsync(device_order, order, kOrderBytes, cudaMemcpyHostToDevice, stream));
        }
        LaunchAddOne(stream, from_host ? order : device_order, orders->device_answer.As<float>());
      }
    });
    return Median(1000, kPairs, [&] { graph.Run(stream); });
  };
  double kernels_alone = kUnknown;
  Measure("kernel that reads 464 B of GPU memory, one of 50 in a graph", "1.2-2 us", [&] {
    Orders orders;
    return kernels_alone = long_graph(&orders, false, false);
  });
  Measure("one copy-engine node and back, between two such kernels", "3-4 us", [&] {
    Orders orders;
    return long_graph(&orders, true, false) - Known(kernels_alone);
  });
  Measure("464 B read from host memory instead of GPU memory by such a kernel", "1 us", [&] {
    Orders orders;
    return long_graph(&orders, false, true) - Known(kernels_alone);
  });
}

void MeasureFlag(const Gpu& gpu) {
  Measure("launch of a flag write until the host sees it", "3-5 us (1-1.5 us of them the write)",
          [&] {
            const PinnedMemory memory(64);
            auto* const flag = memory.As<std::uint64_t>();
            std::uint64_t number = 0;
            const double time = Median(5000, 1, [&] {
              LaunchFlag(gpu.stream, flag, ++number);
              TRY(cudaGetLastError());
              const double limit = Now() + 1e6;
              while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) {
                if (Now() > limit) throw std::runtime_error("the flag is not seen within 1 s");
              }
            });
            Wait(gpu.stream);
            return time;
          });
}

}  // namespace gpu_micro
