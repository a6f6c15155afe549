// gpu.cc - checked calls, graphs and memory.

#include "bench/gpu/gpu.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/gpu/measure.h"

namespace gpu_micro {
namespace {

bool AllEdgesProgrammatic(cudaGraph_t graph) {
  // More than any graph here has, since to ask for their number alone may count as a loss of what
  // they are.
  std::size_t count = 1024;
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> edges(count);
#if CUDART_VERSION >= 13000
  TRY(cudaGraphGetEdges(graph, from.data(), to.data(), edges.data(), &count));
#else
  TRY(cudaGraphGetEdges_v2(graph, from.data(), to.data(), edges.data(), &count));
#endif
  edges.resize(count);
  return std::all_of(edges.begin(), edges.end(), [](const cudaGraphEdgeData& edge) {
    return edge.type == cudaGraphDependencyTypeProgrammatic;
  });
}

}  // namespace

void Try(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error));
}

void Wait(cudaStream_t stream) {
  TRY(cudaGetLastError());
  TRY(cudaStreamSynchronize(stream));
}

void NeedsCapability9(const Gpu& gpu, const void* kernel) {
  if (gpu.major < 9) throw NotOffered("it takes a card of compute capability 9.0");
  cudaFuncAttributes attributes{};
  TRY(cudaFuncGetAttributes(&attributes, kernel));
  if (attributes.ptxVersion < 90) throw NotOffered("this build is for older cards");
}

Graph::Graph(cudaStream_t stream, const std::function<void()>& record, Edges edges) {
  // Once as it is, which loads the kernels: loading may wait, and a capture forbids that.
  record();
  Wait(stream);
  cudaGraph_t graph = nullptr;
  TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    record();
    TRY(cudaGetLastError());
  } catch (...) {
    // The stream is for other rows too: it must not go on capturing.
    static_cast<void>(cudaStreamEndCapture(stream, &graph));
    if (graph != nullptr) cudaGraphDestroy(graph);
    static_cast<void>(cudaGetLastError());
    throw;
  }
  TRY(cudaStreamEndCapture(stream, &graph));
  if (edges == Edges::kProgrammatic && !AllEdgesProgrammatic(graph)) {
    cudaGraphDestroy(graph);
    throw std::runtime_error("the capture made ordinary edges");
  }
  TRY(cudaGraphInstantiate(&exec_, graph, 0));
  TRY(cudaGraphDestroy(graph));
}

Graph::~Graph() { cudaGraphExecDestroy(exec_); }

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  TRY(cudaMalloc(&data_, bytes));
  Clear();
}

void DeviceMemory::Clear() {
  TRY(cudaMemset(data_, 0, bytes_));
  // Streams here do not wait for the default stream, on which that ran.
  TRY(cudaDeviceSynchronize());
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  TRY(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  std::memset(data_, 0, bytes);
}

}  // namespace gpu_micro
