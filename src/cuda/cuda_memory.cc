#include "cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "cuda/cuda_try.h"
#include "cuda/plugin_log.h"
#include "cuda/probe.h"
#include "cuda/runtime_driver_calls.h"

namespace passel::cuda {
namespace {

std::string Mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::uintptr_t Number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

Status CudaMemory::CheckLimit(std::size_t bytes) const {
  if (limit_ != 0 && (bytes > limit_ || used_ > limit_ - bytes)) {
    return ResourceExhausted(
        fmt::format("{} more of GPU memory are needed, {} are in use, and this task may use {}: "
                    "raise --per_process_gpu_memory_fraction, or train a smaller model or data set",
                    Mebibytes(bytes), Mebibytes(used_), Mebibytes(limit_)));
  }
  return {};
}

Status CudaMemory::NoneLeft(std::size_t bytes) const {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return ResourceExhausted(
      fmt::format("{} more of GPU memory are needed, but {} has {} free of {}: end other "
                  "processes on it, or train a smaller model or data set",
                  Mebibytes(bytes), context_.info().name, Mebibytes(free), Mebibytes(total)));
}

Status CudaMemory::Clear(void* memory, std::size_t bytes) {
  const cudaError_t cleared = cudaMemsetAsync(memory, 0, bytes, context_.stream());
  if (cleared != cudaSuccess) {
    return context_.KeepIfLost(
        CudaStatus(cleared, "clearing GPU memory", "cudaMemsetAsync", __FILE__, __LINE__));
  }
  return context_.Synchronize(Deadline::After(std::chrono::seconds(kCopySeconds)));
}

Result<Device::Memory> CudaMemory::Allocate(std::size_t bytes) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  PASSEL_CHECK(bytes > 0, "an allocation has at least one byte");
  PASSEL_RETURN_IF_ERROR(CheckLimit(bytes));
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return NoneLeft(bytes);
  }
  if (error != cudaSuccess) {
    return context_.KeepIfLost(
        CudaStatus(error, "allocating GPU memory", "cudaMalloc", __FILE__, __LINE__));
  }
  blocks_[Number(memory)] = {bytes, Kind::kDevice, bytes};
  used_ += bytes;
  Device::Memory owner(memory, Device::Deleter{&owner_, Kind::kDevice});
  PASSEL_RETURN_IF_ERROR(Clear(memory, bytes));
  return owner;
}

Result<Device::Memory> CudaMemory::AllocatePinned(std::size_t bytes) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  PASSEL_CHECK(bytes > 0, "an allocation has at least one byte");
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return ResourceExhausted(
        fmt::format("{} of page-locked host memory are needed, and the driver has none: free host "
                    "memory, or raise the container's memory limit",
                    Mebibytes(bytes)));
  }
  if (error != cudaSuccess) {
    return context_.KeepIfLost(
        CudaStatus(error, "allocating pinned memory", "cudaHostAlloc", __FILE__, __LINE__));
  }
  std::memset(memory, 0, bytes);
  blocks_[Number(memory)] = {bytes, Kind::kPinned};
  return Device::Memory(memory, Device::Deleter{&owner_, Kind::kPinned});
}

Result<Device::Memory> CudaMemory::Register(void* begin, std::size_t bytes) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  PASSEL_CHECK(bytes > 0, "a registration has at least one byte");
  const auto same = blocks_.find(Number(begin));  // the driver would refuse it
  if (same != blocks_.end() && same->second.kind == Kind::kRegistration &&
      same->second.bytes == bytes) {
    ++same->second.owners;
    return Device::Memory(begin, Device::Deleter{&owner_, Kind::kRegistration});
  }
  const cudaError_t error =
      cudaHostRegister(begin, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    const std::string text = fmt::format("the driver does not register {} of host memory: {}",
                                         Mebibytes(bytes), CudaErrorText(error));
    Status status = StatusOfError(error, text);
    if (status.code() == Code::kUnavailable) return context_.Fail(std::move(status));
    return status.code() == Code::kResourceExhausted ? std::move(status) : FailedPrecondition(text);
  }
  blocks_[Number(begin)] = {bytes, Kind::kRegistration};
  Device::Memory owner(begin, Device::Deleter{&owner_, Kind::kRegistration});
  // Kernels and copies name host memory by the host's address.
  void* device_address = nullptr;
  if (cudaHostGetDevicePointer(&device_address, begin, 0) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    device_address = nullptr;
  }
  if (device_address != begin) {
    return FailedPrecondition(fmt::format(
        "the driver gives {} of registered host memory another address", Mebibytes(bytes)));
  }
  return owner;
}

Device::Memory CudaMemory::Keep(const ExportedMemory& exported, std::size_t counted) {
  blocks_[Number(exported.data)] = {exported.bytes, Kind::kShared, counted, 1, exported};
  used_ += counted;
  return Device::Memory(exported.data, Device::Deleter{&owner_, Kind::kShared});
}

Result<Device::Memory> CudaMemory::CreateShared(std::size_t bytes, FileDescriptor* fd) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  PASSEL_RETURN_IF_ERROR(CheckLimit(bytes));
  if (context_.info().uuid.starts_with("MIG-")) {
    return FailedPrecondition(
        fmt::format("{} is a MIG instance, whose memory processes cannot share: use --arena host",
                    context_.info().uuid));
  }
  const Result<ExportedMemory> exported = CreateExported(context_.ordinal(), bytes, fd);
  if (exported.status().code() == Code::kResourceExhausted) return NoneLeft(bytes);
  if (!exported.ok()) return context_.KeepIfLost(exported.status());
  Device::Memory owner = Keep(*exported, bytes);
  PASSEL_RETURN_IF_ERROR(Clear(owner.get(), bytes));
  return owner;
}

Result<Device::Memory> CudaMemory::ImportShared(int fd, std::size_t bytes,
                                                const std::string& home) {
  PASSEL_RETURN_IF_ERROR(context_.Enter());
  int of = context_.ordinal();
  if (!home.empty() && home != context_.info().uuid) {
    RuntimeDriverCalls driver;
    PASSEL_ASSIGN_OR_RETURN(of, ProbePeer(driver, context_.ordinal(), context_.info().uuid, home));
    PluginLogInfo(
        fmt::format("GPU {} works in the memory of GPU {}: peer access and native atomics",
                    context_.info().uuid, home));
  }
  const Result<ExportedMemory> exported = ImportExported(context_.ordinal(), of, fd, bytes);
  if (!exported.ok()) return context_.KeepIfLost(exported.status());
  return Keep(*exported, 0);  // its maker's
}

void CudaMemory::Release(Kind kind, void* memory) {
  const auto found = blocks_.find(Number(memory));
  PASSEL_CHECK(found != blocks_.end() && found->second.kind == kind,
               "what is given back was handed out by this device");
  if (--found->second.owners > 0) return;
  const std::size_t bytes = found->second.bytes;
  const ExportedMemory exported = found->second.exported;
  used_ -= found->second.counted;
  blocks_.erase(found);
  // A lost context keeps its memory until the process ends; a running launch may still write.
  Status idle = context_.Synchronize(Deadline::After(std::chrono::seconds(kTearDownSeconds)));
  if (!idle.ok()) {
    if (idle.code() == Code::kDeadlineExceeded) {
      PluginLogWarning(fmt::format(
          "the GPU still works after {} s: {} of its memory are left to the end of this process",
          kTearDownSeconds, Mebibytes(bytes)));
    }
    return;
  }
  cudaError_t error = cudaSuccess;
  switch (kind) {
    case Kind::kDevice:
      error = cudaFree(memory);
      break;
    case Kind::kPinned:
      error = cudaFreeHost(memory);
      break;
    case Kind::kRegistration:
      error = cudaHostUnregister(memory);
      break;
    case Kind::kShared:
      if (const std::string_view problem = UnmapExported(exported); !problem.empty()) {
        PluginLogWarning(fmt::format("{} of shared GPU memory were not unmapped: {}",
                                     Mebibytes(bytes), problem));
      }
      return;
  }
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (!IsGone(error)) {
    PluginLogWarning(fmt::format("{} of GPU memory were not given back: {}", Mebibytes(bytes),
                                 CudaErrorText(error)));
  }
}

bool CudaMemory::IsReachable(const void* host, std::size_t bytes) const {
  const std::uintptr_t begin = Number(host);
  auto next = blocks_.upper_bound(begin);
  if (next == blocks_.begin()) return false;
  const auto& [start, block] = *--next;
  const bool of_host = block.kind == Kind::kPinned || block.kind == Kind::kRegistration;
  return of_host && begin - start <= block.bytes && bytes <= block.bytes - (begin - start);
}

}  // namespace passel::cuda
