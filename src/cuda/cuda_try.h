// cuda_try.h - errors of the CUDA runtime as a Status that says where and what.
//
// The runtime keeps the last error of a thread until somebody takes it, and would hand it to an
// unrelated later call: whoever gets an error here has also taken it.

#pragma once

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace passel::cuda {

/// "cudaErrorNoDevice (no CUDA-capable device is detected)".
inline std::string CudaErrorText(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
}

/// True for errors after which no call of this process on this device can succeed.
inline bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

/// `operation` as the user knows it ("forward 1"), `call` as the runtime does. Takes the error.
inline Status CudaStatus(cudaError_t error, std::string_view operation, std::string_view call,
                         std::string_view file, int line) {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  std::string text = fmt::format("{}: {} failed with {} at {}:{}", operation, call,
                                 CudaErrorText(error), file.substr(file.rfind('/') + 1), line);
  if (IsSticky(error)) {
    return Unavailable(text + "; this process cannot use the GPU any more: start the task again");
  }
  if (error == cudaErrorMemoryAllocation) return ResourceExhausted(std::move(text));
  return Internal(std::move(text));
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
