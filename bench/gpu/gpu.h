// gpu.h - the little of CUDA that every row of gpu_micro needs: checked calls, graphs, memory.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

namespace gpu_micro {

constexpr std::size_t kFloats = 79510;  ///< parameters of 784-100-10
constexpr std::size_t kBytes = kFloats * sizeof(float);

/// Throws unless `error` is success; `call` says what failed.
void Try(cudaError_t error, const char* call);
#define TRY(call) ::gpu_micro::Try((call), #call)

/// The card that is measured, and the stream on which its work runs.
struct Gpu {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  int major = 0;  ///< of its compute capability
};

/// Waits for all work of the stream; throws if a launch before was refused.
void Wait(cudaStream_t stream);

/// Throws NotOffered unless the card has compute capability 9.0 and `kernel` was compiled for it.
void NeedsCapability9(const Gpu& gpu, const void* kernel);

/// What `record` launches on the stream, as a graph.
class Graph {
 public:
  /// Programmatic edges let the second kernel begin before the first one ends.
  enum class Edges { kAny, kProgrammatic };

  /// Throws if not all edges are of the kind that is asked for.
  Graph(cudaStream_t stream, const std::function<void()>& record, Edges edges = Edges::kAny);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void Launch(cudaStream_t stream) const { TRY(cudaGraphLaunch(exec_, stream)); }
  void Run(cudaStream_t stream) const {
    Launch(stream);
    Wait(stream);
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// Memory of the GPU, all zero.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  void Clear();

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// Memory of the host that the GPU reaches under the same address, all zero.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  template <typename T>
  T* As() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// The value at `from`, which is memory of the GPU on which nothing is at work.
template <typename T>
T Fetch(const T* from) {
  T value{};
  TRY(cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

}  // namespace gpu_micro
