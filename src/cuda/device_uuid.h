// device_uuid.h - what a device is called: "GPU-..." for a whole one, "MIG-..." for an instance.
//
// From or to an instance no other process or GPU can reach memory, so what is refused there hangs
// on the name. Whether the runtime gives an instance its own UUID or that of its GPU is nowhere
// promised, so three are asked, and one that says instance is enough.

#pragma once

#include <array>
#include <optional>
#include <string>

namespace passel::cuda {

using UuidBytes = std::array<char, 16>;

struct DeviceUuidFacts {
  UuidBytes runtime{};              ///< as the runtime says: its own, or that of its GPU
  std::optional<UuidBytes> driver;  ///< its own, as the driver says; none: it does not
  std::string visible;              ///< CUDA_VISIBLE_DEVICES; empty: not set
  int ordinal = 0;                  ///< of the device, among those
  /// NVIDIA's management library. It comes with the driver, but a container may lack it.
  std::string nvml = "libnvidia-ml.so.1";
};

/// Asks NVML last, and only if nothing else says instance.
std::string DeviceUuid(const DeviceUuidFacts& facts);

/// Whether that library, opened by dlopen(), knows a MIG instance of this name. It is not closed
/// again: drivers' libraries do not expect it.
bool IsMigInstance(const std::string& library, const std::string& uuid);

}  // namespace passel::cuda
