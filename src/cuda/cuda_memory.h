// cuda_memory.h - all memory that a CudaDevice hands out, and where copies may go.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "cuda/cuda_context.h"
#include "cuda/device.h"
#include "cuda/exported_memory.h"

namespace passel::cuda {

class CudaMemory {
 public:
  /// What it hands out is given back to `owner`, which passes it on to Release(). `limit`: bytes of
  /// device memory that this process may have made, 0: no limit of ours. Both outlive it.
  CudaMemory(Device& owner, CudaContext& context, std::uint64_t limit)
      : owner_(owner), context_(context), limit_(limit) {}

  // As in Device.
  Result<Device::Memory> Allocate(std::size_t bytes);
  Result<Device::Memory> AllocatePinned(std::size_t bytes);
  Result<Device::Memory> Register(void* begin, std::size_t bytes);
  Result<Device::Memory> CreateShared(std::size_t bytes, FileDescriptor* fd);
  Result<Device::Memory> ImportShared(int fd, std::size_t bytes, const std::string& home);
  /// Waits until what was launched is done. What the GPU may still write to is left to the end of
  /// the process.
  void Release(Device::Deleter::Kind kind, void* memory);

  /// Nothing is handed out: not abandoned either.
  bool empty() const { return blocks_.empty(); }
  /// True for pinned and registered host memory.
  bool IsReachable(const void* host, std::size_t bytes) const;

 private:
  using Kind = Device::Deleter::Kind;
  struct Block {
    std::size_t bytes = 0;
    Kind kind = Kind::kDevice;
    std::size_t counted = 0;       // bytes of the limit
    int owners = 1;                // more than one of a kRegistration alone
    ExportedMemory exported = {};  // kShared
  };

  // What this process may make, if it may make so much more.
  Status CheckLimit(std::size_t bytes) const;
  // The sentence for a GPU that has not so much more.
  Status NoneLeft(std::size_t bytes) const;
  // Zeroes it, and waits for that.
  Status Clear(void* memory, std::size_t bytes);
  Device::Memory Keep(const ExportedMemory& exported, std::size_t counted);

  Device& owner_;
  CudaContext& context_;
  const std::uint64_t limit_;
  std::uint64_t used_ = 0;  // of the limit
  std::map<std::uintptr_t, Block> blocks_;
};

}  // namespace passel::cuda
