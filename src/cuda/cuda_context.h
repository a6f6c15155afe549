// cuda_context.h - one GPU as this process holds it: its context, one stream, and its first error.

#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/deadline.h"
#include "base/status.h"
#include "compute/accelerator.h"
#include "cuda/probe.h"

namespace passel::cuda {

inline constexpr int kTearDownSeconds = 10;
/// Longest wait for a copy at once, and for what is made ready.
inline constexpr int kCopySeconds = 120;

/// Threads: one at a time.
class CudaContext {
 public:
  explicit CudaContext(const ProbedDevice& device) : info_(device.info), ordinal_(device.ordinal) {}
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  /// Makes context and stream. Errors: as OpenCudaDevice().
  Status Init();
  /// Gives the stream back, unless the GPU has failed. For an owner that left nothing behind.
  void Close();

  const AcceleratorInfo& info() const { return info_; }
  int ordinal() const { return ordinal_; }
  cudaStream_t stream() const { return stream_; }

  /// Every call begins with this: a thread's current device is its own affair. Errors: the one
  /// kept.
  Status Enter();
  /// Keeps the first error of the GPU, and returns it.
  Status Fail(Status status);
  /// Only what a launch or the device itself broke is kept; a refused allocation is not.
  Status KeepIfLost(Status status);

  /// What is launched next, for errors that show later.
  void SetLaunch(const std::string& name) { last_launch_ = name; }
  Status Health();
  /// Until the stream is empty. Errors: kDeadlineExceeded; the GPU's, which are kept.
  Status Synchronize(Deadline deadline);

 private:
  AcceleratorInfo info_;
  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  Status failed_;
  std::string last_launch_ = "nothing";
};

}  // namespace passel::cuda
