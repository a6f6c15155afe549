// far_memory.h - bytes of another GPU's memory on their way to the host: a kernel fetches them into
// memory of this GPU, and from there they are copied.
//
// Why not a copy: copies are for memory of this device (Device::ImportShared()), and a kernel's
// loads give whole words whoever writes them.

#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "base/deadline.h"
#include "base/status.h"
#include "cuda/device.h"

namespace passel::cuda {

/// Threads: that of the device.
class FarReader {
 public:
  explicit FarReader(Device& device) : device_(device) {}

  /// Room for reads of up to `bytes`. Errors: the device's.
  Status Reserve(std::size_t bytes);
  /// Behind everything launched before. REQUIRES: `from` is 4-byte aligned, `bytes` whole words and
  /// no more than was reserved. Errors: kDeadlineExceeded (nothing is lost); the device's.
  Status Read(void* to_host, const void* from, std::size_t bytes, Deadline deadline);

  /// Something was launched, so it may be under way.
  bool launched() const { return launched_; }
  /// Gives nothing back, ever: for a device that does not come to an end.
  void Abandon();

 private:
  Device& device_;
  bool launched_ = false;
  // Given back from the last to the first: executables before what they name.
  Device::Memory near_;
  std::map<const void*, std::unique_ptr<Device::Executable>> fetches_;
};

}  // namespace passel::cuda
