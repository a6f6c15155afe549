// error_class.h - what an error of CUDA means for a task.
//
// Numbers of cudaError_t, which are those of the driver's CUresult too (cuda_try.h holds the names
// against them): this needs no header of CUDA's.

#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace passel::cuda {

enum class ErrorClass {
  kOther,   ///< a bug, or a setting that nobody foresaw
  kMemory,  ///< the GPU, or the driver, has no memory left
  kLater,   ///< the GPU, its driver or its MPS server takes nobody now, and may soon
  kLost,    ///< no call of this process on this device can succeed any more
};

constexpr ErrorClass ClassOf(int error) {
  switch (error) {
    case 2:  // memory allocation
      return ErrorClass::kMemory;
    case 46:   // devices unavailable: busy, or held in exclusive mode
    case 802:  // system not ready: the fabric manager still starts
    case 805:  // MPS connection failed
    case 806:  // MPS RPC failure
    case 807:  // MPS server not ready: it recovers from a fault of a client
    case 808:  // MPS max clients reached
    case 809:  // MPS max connections reached
      return ErrorClass::kLater;
    case 214:  // ECC uncorrectable
    case 220:  // NVLink uncorrectable
    case 700:  // illegal address
    case 702:  // launch timeout
    case 709:  // context is destroyed
    case 710:  // assert
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid PC
    case 719:  // launch failure
    case 721:  // tensor memory leak
    case 810:  // MPS client terminated
    case 911:  // external device
    case 999:  // unknown
      return ErrorClass::kLost;
    default:
      return ErrorClass::kOther;
  }
}

/// `text` with the code that the error asks for, and with what to do where the task may be started
/// again: kUnavailable, kResourceExhausted or kInternal. REQUIRES: error != 0.
inline Status StatusOfError(int error, std::string text) {
  switch (ClassOf(error)) {
    case ErrorClass::kLater:
      return Unavailable(std::move(text) +
                         "; the GPU or its MPS server takes nobody now: start the task again");
    case ErrorClass::kLost:
      return Unavailable(std::move(text) +
                         "; this process cannot use the GPU any more: start the task again");
    case ErrorClass::kMemory:
      return ResourceExhausted(std::move(text));
    case ErrorClass::kOther:
      break;
  }
  return Internal(std::move(text));
}

}  // namespace passel::cuda
