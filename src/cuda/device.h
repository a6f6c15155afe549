// device.h - the little of a GPU that a training step needs. CudaDevice is a GPU, the FakeDevice of
// the tests is an adversary that runs everything as late and in as odd an order as it may.
//
// Threads    One thread at a time.
// Errors     Returned. After the first error of a launched plan everything else fails with it.
// Life       Memory, registrations and executables are given back before the device; an executable
//            before the memory that its plan names.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"
#include "compute/accelerator.h"
#include "cuda/plan.h"

namespace passel::cuda {

/// For what was launched before memory is given back.
inline constexpr std::chrono::seconds kTearDownLimit{10};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual const AcceleratorInfo& info() const = 0;

  struct Deleter {
    Device* owner = nullptr;
    enum class Kind : std::uint8_t { kDevice, kPinned, kRegistration, kShared };
    Kind kind = Kind::kDevice;
    void operator()(void* memory) const { owner->Release(kind, memory); }
  };
  /// Memory of the device, of the host, a registration of memory that somebody else owns, or a
  /// mapping of device memory that other processes map too.
  using Memory = std::unique_ptr<void, Deleter>;

  /// Zeroed memory of the device, 256-byte aligned. Errors: kResourceExhausted with need, limit and
  /// what is free.
  virtual Result<Memory> Allocate(std::size_t bytes) = 0;
  /// Zeroed page-locked host memory that kernels may write to, at the same address.
  virtual Result<Memory> AllocatePinned(std::size_t bytes) = 0;
  /// Makes [begin, begin + bytes) of this process's memory, whole pages, reachable by DMA. The same
  /// range again is the same registration, which ends with the last of its owners.
  /// Errors: kResourceExhausted or kFailedPrecondition when the driver refuses; nothing is left
  /// behind, and a copy through pinned memory still works.
  virtual Result<Memory> Register(void* begin, std::size_t bytes) = 0;

  /// Zeroed memory of the device, 256-byte aligned, that every process can map that gets `*fd`. It
  /// lives as long as anybody maps it or holds such a descriptor.
  /// Errors: as Allocate(); kFailedPrecondition, with what to use instead, where this device has no
  /// such memory.
  virtual Result<Memory> CreateShared(std::size_t bytes, FileDescriptor* fd) = 0;
  /// Maps memory that CreateShared() made for as many bytes, on the device with the UUID `home`;
  /// empty: on this one. The caller keeps `fd`. Another device's memory is for kernels alone, and
  /// only for those at system scope: no copy names it.
  /// Errors: kFailedPrecondition, one sentence, where this device cannot access the other's memory
  /// or do atomic operations there, or this process does not see it; kInternal.
  virtual Result<Memory> ImportShared(int fd, std::size_t bytes, const std::string& home) = 0;

  /// Copies at once, and waits until it is done. For set-up, not for steps.
  virtual Status CopyIn(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual Status CopyOut(void* to_host, const void* from, std::size_t bytes) = 0;

  struct Library {
    bool there = false;
    std::string why_not;  ///< one clause, with the remedy
  };
  /// Whether there is a library for large products. Opens it.
  /// Errors: kInvalidArgument, kFailedPrecondition, with the remedy, for a library that was named
  /// and cannot be used; the device's.
  virtual Result<Library> HasLibrary() = 0;

  /// A plan made ready to run.
  class Executable {
   public:
    virtual ~Executable() = default;
  };
  enum class How : std::uint8_t { kGraph, kOneByOne };
  /// Everything that can be done once is done here (modules loaded, algorithms chosen, graph
  /// instantiated). Host memory in the plan must be pinned or registered.
  virtual Result<std::unique_ptr<Executable>> Prepare(const Plan& plan, How how) = 0;

  /// Queues one run behind everything launched before. Host memory in the plan is read and written
  /// at any time until the run's last operation is done: a caller learns of that by what the plan
  /// writes to pinned memory (StoreReleaseSystem()). Never blocks.
  virtual Status Launch(Executable& executable) = 0;

  /// OK while nothing that was launched has failed. Cheap enough for a spin loop's every 1000th
  /// turn.
  virtual Status Health() = 0;
  /// Until everything launched is done. Errors: kDeadlineExceeded; the device's.
  virtual Status Synchronize(Deadline deadline) = 0;

 protected:
  virtual void Release(Deleter::Kind kind, void* memory) = 0;
};

}  // namespace passel::cuda
