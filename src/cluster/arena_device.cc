#include "cluster/arena_device.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace passel {
namespace {

std::string Named(const ComputeDevice& device) {
  return fmt::format("GPU {} ({})", device.Index(), device.uuid);
}

// What is missing, between "GPU 1 " and " GPU 0"; empty if nothing is.
std::string Missing(const GpuLink* link) {
  if (link == nullptr) return "has no link that is known to";
  if (!link->nvlink) {
    return link->pcie_path.empty()
               ? "has no NVLink to"
               : fmt::format("has no NVLink, but a PCIe path ({}), to", link->pcie_path);
  }
  if (!link->peer_access) return "cannot access the memory of";
  if (!link->peer_atomics) return "cannot do atomic operations on the memory of";
  return "";
}

// The first device that is in the way.
struct Obstacle {
  const ComputeDevice* device = nullptr;  // null: none is
  std::string missing;                    // to the first device; "": it is a MIG instance
};

Obstacle FindObstacle(const Topology& topology, std::span<const ComputeDevice> devices) {
  PASSEL_CHECK(!devices.empty(), "there is a device");
  for (const ComputeDevice& device : devices) {
    if (device.instance) return {&device, ""};
  }
  const ComputeDevice& home = devices.front();
  for (const ComputeDevice& device : devices.subspan(1)) {
    std::string missing = Missing(topology.FindLink(device.gpu, home.gpu));
    if (!missing.empty()) return {&device, std::move(missing)};
  }
  return {};
}

}  // namespace

Status CheckArenaDevices(const Topology& topology, std::span<const ComputeDevice> devices,
                         int workers) {
  const Obstacle obstacle = FindObstacle(topology, devices);
  if (obstacle.device == nullptr) return {};
  if (obstacle.missing.empty()) {
    return InvalidArgument(fmt::format(
        "--arena device is shared by processes, and {} is a MIG instance, whose memory they "
        "cannot share: use --arena host, or a whole GPU",
        obstacle.device->uuid));
  }
  const ComputeDevice& home = devices.front();
  return InvalidArgument(fmt::format(
      "--arena device is for workers on one GPU, or on GPUs with NVLink and atomic operations to "
      "the first of them, and {} {} {}, which would hold the parameters: name one, as in --gpus "
      "{} --workers_per_gpu {}, or use --arena host",
      Named(*obstacle.device), obstacle.missing, Named(home), home.Index(), workers));
}

std::string ArenaObstacle(const Topology& topology, std::span<const ComputeDevice> devices) {
  const Obstacle obstacle = FindObstacle(topology, devices);
  if (obstacle.device == nullptr) return "";
  const std::string index = obstacle.device->Index();
  return obstacle.missing.empty()
             ? fmt::format("GPU {} is a MIG instance", index)
             : fmt::format("GPU {} {} GPU {}", index, obstacle.missing, devices.front().Index());
}

}  // namespace passel
