// A libnvidia-ml.so.1 for tests: the functions that passel uses, answered from the recorded
// topology whose path is in PASSEL_FAKE_NVML. PASSEL_FAKE_NVML_INIT is what nvmlInit returns,
// PASSEL_FAKE_NVML_LOST the index of a GPU that does not answer, PASSEL_FAKE_NVML_SLEEP for how
// many seconds nvmlInit sleeps first.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "cluster/nvml_internal.h"
#include "cluster/topology_json.h"

namespace {

using passel::nvml::Device;
using passel::nvml::Return;

constexpr Return kNotFound = 6;
constexpr Return kLost = 15;

std::optional<passel::Topology> g_topology;

// A handle: GPU, then instance + 1.
Device Handle(std::size_t gpu, std::size_t instance) {
  return reinterpret_cast<Device>(1000 + gpu * 100 + instance);
}
const passel::Gpu& GpuOf(Device device) {
  return g_topology->gpus[(reinterpret_cast<std::uintptr_t>(device) - 1000) / 100];
}
const passel::MigInstance* InstanceOf(Device device) {
  const std::size_t index = (reinterpret_cast<std::uintptr_t>(device) - 1000) % 100;
  return index == 0 ? nullptr : &GpuOf(device).mig_instances[index - 1];
}

int FromEnvironment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

Return Put(const std::string& text, char* out, unsigned bytes) {
  std::snprintf(out, bytes, "%s", text.c_str());
  return passel::nvml::kSuccess;
}

}  // namespace

#define NVML extern "C" __attribute__((visibility("default")))

NVML Return nvmlInit_v2() {
  ::sleep(static_cast<unsigned>(FromEnvironment("PASSEL_FAKE_NVML_SLEEP", 0)));
  const Return code = FromEnvironment("PASSEL_FAKE_NVML_INIT", 0);
  if (code != 0) return code;
  auto topology = passel::ReadTopology(std::getenv("PASSEL_FAKE_NVML"));
  if (!topology.ok()) return 999;
  g_topology = std::move(*topology);
  return 0;
}
NVML Return nvmlShutdown() {
  g_topology.reset();
  return 0;
}
NVML const char* nvmlErrorString(Return code) {
  return code == kLost ? "GPU is lost" : "some error";
}
NVML Return nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return Put(g_topology->driver_version, text, bytes);
}
NVML Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return 0;
}
NVML Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(g_topology->gpus.size());
  return 0;
}
NVML Return nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  for (std::size_t g = 0; g < g_topology->gpus.size(); ++g) {
    const passel::Gpu& gpu = g_topology->gpus[g];
    for (std::size_t i = 0; i <= gpu.mig_instances.size(); ++i) {
      if ((i == 0 ? gpu.uuid : gpu.mig_instances[i - 1].uuid) != uuid) continue;
      *device = Handle(g, i);
      return 0;
    }
  }
  return kNotFound;
}
NVML Return nvmlDeviceIsMigDeviceHandle(Device device, unsigned* is_mig) {
  *is_mig = InstanceOf(device) != nullptr ? 1 : 0;
  return 0;
}
NVML Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (FromEnvironment("PASSEL_FAKE_NVML_LOST", -1) == static_cast<int>(index)) return kLost;
  *device = Handle(index, 0);
  return 0;
}
NVML Return nvmlDeviceGetUUID(Device device, char* text, unsigned bytes) {
  const auto* const instance = InstanceOf(device);
  return Put(instance == nullptr ? GpuOf(device).uuid : instance->uuid, text, bytes);
}
NVML Return nvmlDeviceGetName(Device device, char* text, unsigned bytes) {
  const auto* const instance = InstanceOf(device);
  return Put(instance == nullptr ? GpuOf(device).name : instance->name, text, bytes);
}
NVML Return nvmlDeviceGetMemoryInfo(Device device, passel::nvml::Memory* memory) {
  const auto* const instance = InstanceOf(device);
  memory->total = instance == nullptr ? GpuOf(device).memory_bytes : instance->memory_bytes;
  memory->free = memory->used = 0;
  return 0;
}
NVML Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  *major = GpuOf(device).compute_capability / 10;
  *minor = GpuOf(device).compute_capability % 10;
  return 0;
}
NVML Return nvmlDeviceGetPciInfo_v3(Device device, passel::nvml::PciInfo* pci) {
  *pci = {};
  const int got = std::sscanf(GpuOf(device).pci_address.c_str(), "%x:%x:%x.0", &pci->domain,
                              &pci->bus, &pci->device);
  return got == 3 ? 0 : 999;
}
NVML Return nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  if (GpuOf(device).name.find("RTX") != std::string::npos) return passel::nvml::kNotSupported;
  *current = *pending = GpuOf(device).mig_enabled ? 1 : 0;
  return 0;
}
NVML Return nvmlDeviceGetMaxMigDeviceCount(Device, unsigned* count) {
  *count = 14;
  return 0;
}
// Every other place is empty.
NVML Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* child) {
  const passel::Gpu& gpu = GpuOf(device);
  if (index % 2 != 0 || index / 2 >= gpu.mig_instances.size()) return kNotFound;
  *child = Handle(static_cast<std::size_t>(gpu.index), index / 2 + 1);
  return 0;
}
NVML Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, int* level) {
  const auto* const link = g_topology->FindLink(GpuOf(a).index, GpuOf(b).index);
  if (link == nullptr) return kNotFound;
  const std::string& path = link->pcie_path;
  *level = path == "PIX" ? 10 : path == "PXB" ? 20 : path == "PHB" ? 30 : path == "NODE" ? 40 : 50;
  return 0;
}
NVML Return nvmlDeviceGetP2PStatus(Device a, Device b, int capability, int* status) {
  const auto* const link = g_topology->FindLink(GpuOf(a).index, GpuOf(b).index);
  if (link == nullptr) return kNotFound;
  const bool yes = capability <= passel::nvml::kWrite    ? link->peer_access
                   : capability == passel::nvml::kNvlink ? link->nvlink
                                                         : link->peer_atomics;
  *status = yes ? passel::nvml::kPeerOk : 5;
  return 0;
}
