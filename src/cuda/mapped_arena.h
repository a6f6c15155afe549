// mapped_arena.h - a DeviceArena (compute/device_arena.h) on any Device.

#pragma once

#include <memory>

#include "base/status.h"
#include "compute/device_arena.h"
#include "cuda/device.h"

namespace passel::cuda {

/// `device` must outlive the arena. Errors: as Accelerator::CreateArena() and ImportArena().
Result<std::unique_ptr<DeviceArena>> CreateMappedArena(Device& device,
                                                       const DeviceArenaShape& shape);
Result<std::unique_ptr<DeviceArena>> ImportMappedArena(Device& device, int fd,
                                                       const DeviceArenaShape& shape);

}  // namespace passel::cuda
