#include "cuda/cuda_context.h"

#include <fmt/core.h>
#include <sched.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "cuda/cuda_try.h"
#include "cuda/plugin_log.h"

namespace passel::cuda {
namespace {

// Pauses between two looks at the device: none, then the processor, then short sleeps.
class Pause {
 public:
  void Once() {
    ++turns_;
    if (turns_ < 200) return;
    if (turns_ < 2000) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  int turns_ = 0;
};

}  // namespace

Status CudaContext::Init() {
  const cudaError_t error = cudaSetDevice(ordinal_);  // makes the context
  if (error == cudaErrorDevicesUnavailable) {
    static_cast<void>(cudaGetLastError());
    return Unavailable(
        fmt::format("{} ({}) is busy, or held by another process (compute mode 'exclusive'): use "
                    "another GPU, wait, or have the mode set to 'default' (nvidia-smi -c 0)",
                    info_.name, info_.uuid));
  }
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return ResourceExhausted(
        fmt::format("{} ({}) has no memory left for another process: end some of those that "
                    "nvidia-smi lists, or use another GPU",
                    info_.name, info_.uuid));
  }
  PASSEL_CUDA_TRY("making a context", error);
  PASSEL_CUDA_TRY("making a stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  std::size_t free = 0;
  std::size_t total = 0;
  PASSEL_CUDA_TRY("asking for free memory", cudaMemGetInfo(&free, &total));
  info_.free_bytes = free;
  return {};
}

void CudaContext::Close() {
  if (stream_ == nullptr || !failed_.ok()) return;
  if (const cudaError_t error = cudaStreamDestroy(stream_); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    if (!IsGone(error)) {
      PluginLogWarning("the GPU's stream was not given back: " + CudaErrorText(error));
    }
  }
  stream_ = nullptr;
}

Status CudaContext::Enter() {
  PASSEL_RETURN_IF_ERROR(failed_);
  PASSEL_CUDA_TRY("choosing the GPU", cudaSetDevice(ordinal_));
  return {};
}

Status CudaContext::Fail(Status status) {
  if (failed_.ok()) {
    failed_ = std::move(status);
    PluginLogWarning("GPU fault: " + failed_.message());
  }
  return failed_;
}

Status CudaContext::KeepIfLost(Status status) {
  return status.code() == Code::kUnavailable ? Fail(std::move(status)) : std::move(status);
}

Status CudaContext::Health() {
  PASSEL_RETURN_IF_ERROR(Enter());
  const cudaError_t error = cudaStreamQuery(stream_);
  if (error == cudaSuccess) return {};
  if (error == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  return Fail(CudaStatus(error, last_launch_, "cudaStreamQuery", __FILE__, __LINE__));
}

Status CudaContext::Synchronize(Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(Enter());
  Pause pause;
  while (true) {
    const cudaError_t error = cudaStreamQuery(stream_);
    if (error == cudaSuccess) return {};
    if (error != cudaErrorNotReady) {
      return Fail(CudaStatus(error, last_launch_, "cudaStreamQuery", __FILE__, __LINE__));
    }
    static_cast<void>(cudaGetLastError());
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format("the GPU has not finished {}", last_launch_));
    }
    pause.Once();
  }
}

}  // namespace passel::cuda
