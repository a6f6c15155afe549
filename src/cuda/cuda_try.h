// cuda_try.h - errors of the CUDA runtime as a Status that says where and what.
//
// The runtime keeps the last error of a thread until somebody takes it, and would hand it to an
// unrelated later call: whoever gets an error here has also taken it.

#pragma once

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "cuda/error_class.h"

namespace passel::cuda {

/// "cudaErrorNoDevice (no CUDA-capable device is detected)".
inline std::string CudaErrorText(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
}

static_assert(ClassOf(cudaErrorMemoryAllocation) == ErrorClass::kMemory);

// What may go away by itself.
static_assert(ClassOf(cudaErrorDevicesUnavailable) == ErrorClass::kLater);
static_assert(ClassOf(cudaErrorSystemNotReady) == ErrorClass::kLater);
static_assert(ClassOf(cudaErrorMpsConnectionFailed) == ErrorClass::kLater);
static_assert(ClassOf(cudaErrorMpsRpcFailure) == ErrorClass::kLater);
static_assert(ClassOf(cudaErrorMpsServerNotReady) == ErrorClass::kLater);
static_assert(ClassOf(cudaErrorMpsMaxClientsReached) == ErrorClass::kLater);
static_assert(ClassOf(cudaErrorMpsMaxConnectionsReached) == ErrorClass::kLater);

// What does not.
static_assert(ClassOf(cudaErrorECCUncorrectable) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorNvlinkUncorrectable) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorContextIsDestroyed) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorIllegalAddress) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorLaunchTimeout) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorAssert) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorHardwareStackError) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorIllegalInstruction) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorMisalignedAddress) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorInvalidAddressSpace) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorInvalidPc) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorLaunchFailure) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorMpsClientTerminated) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorExternalDevice) == ErrorClass::kLost);
static_assert(ClassOf(cudaErrorUnknown) == ErrorClass::kLost);

/// `operation` as the user knows it ("forward 1"), `call` as the runtime does. Takes the error.
inline Status CudaStatus(cudaError_t error, std::string_view operation, std::string_view call,
                         std::string_view file, int line) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  std::string text = fmt::format("{}: {} failed with {} at {}:{}", operation, call,
                                 CudaErrorText(error), file.substr(file.rfind('/') + 1), line);
  return StatusOfError(error, std::move(text));
}

/// For destructors: at the end of the process the runtime may be gone, and its memory with it.
inline bool IsGone(cudaError_t error) {
  return error == cudaErrorCudartUnloading || error == cudaErrorContextIsDestroyed;
}

}  // namespace passel::cuda

/// PASSEL_CUDA_TRY("reading the loss", cudaMemcpy(...)): returns from the function with the error.
#define PASSEL_CUDA_TRY(operation, call)                                                      \
  do {                                                                                        \
    if (const cudaError_t passel_error_ = (call); passel_error_ != cudaSuccess) {             \
      return ::passel::cuda::CudaStatus(passel_error_, operation, #call, __FILE__, __LINE__); \
    }                                                                                         \
  } while (false)
