// exported_memory.h - GPU memory that several processes map, by the driver's virtual memory
// management: an allocation of its own, whose file descriptor is all that others need.
//
// The memory lives as long as a process holds its descriptor or maps it, whoever made it. The
// driver's functions are asked for by name at run time: nothing is linked.

#pragma once

#include <cstddef>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel::cuda {

/// A mapping into this process. Give it back with Unmap().
struct ExportedMemory {
  void* data = nullptr;   ///< device memory, as every kernel and copy takes it
  std::size_t bytes = 0;  ///< mapped: whole granules, so at least what was asked for
  unsigned long long handle = 0;
};

/// The granule of such memory on device `ordinal`. Errors: kFailedPrecondition where the device or
/// its driver has no such memory, or none that can be handed over as a file descriptor.
Result<std::size_t> ExportGranule(int ordinal);

/// New memory of at least `bytes`, not cleared, and its descriptor. REQUIRES: the calling thread's
/// device is `ordinal`. Errors: as ExportGranule(); kResourceExhausted; kInternal.
Result<ExportedMemory> CreateExported(int ordinal, std::size_t bytes, FileDescriptor* fd);

/// Maps memory that CreateExported() made for as many bytes on device `home`, for kernels of device
/// `ordinal`; the memory stays where it is. REQUIRES: both are the same, or ProbePeer() found that
/// the one can access the other. Errors: as above.
Result<ExportedMemory> ImportExported(int ordinal, int home, int fd, std::size_t bytes);

/// The last mapping and descriptor take the memory with them. Returns an empty string, or what the
/// driver said.
const char* UnmapExported(const ExportedMemory& memory);

}  // namespace passel::cuda
