// cuda_device.h - the Device that is a GPU.
//
// Everything runs on one stream of its own, in the order of the launches; what may overlap within a
// launch follows from the edges of its plan, which is one CUDA graph. cuBLASLt is opened by the
// first plan that holds a LargeGemm.
//
// Errors     After the first that the GPU reports every call returns that one: it names the launch,
//            and in one-by-one mode the operation. Nothing recovers a context.
// Tear-down  Memory is given back when what was launched is done; if that is not so after
//            kTearDownSeconds (cuda_context.h), or after an error, it is left to the end of the
//            process, and so is what an owner abandoned.

#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "cuda/device.h"
#include "cuda/probe.h"

namespace passel::cuda {

/// Makes a context on a device that Probe() found. `memory_limit_bytes`: of what Allocate() and
/// CreateShared() make, cuBLASLt's workspace included; 0: no limit of ours.
/// Errors: kFailedPrecondition if others hold the device; kResourceExhausted without memory for a
/// context; kInternal from the driver.
Result<std::unique_ptr<Device>> OpenCudaDevice(const ProbedDevice& device,
                                               std::uint64_t memory_limit_bytes);

}  // namespace passel::cuda
