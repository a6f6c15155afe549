// The GPUs of this machine, as the driver's management library tells.

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <cstring>
#include <fstream>

#include "cluster/machine_probe.h"
#include "cluster/nvml_internal.h"
#include "cluster/text.h"
#include "cluster/topology_json.h"

namespace passel {
namespace {

using nvml::Device;
using nvml::Return;

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
}

// The library, open. Initialised between Open() and the end of its life; never unloaded, since
// drivers' libraries do not expect it.
class Library {
 public:
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (initialised_) f.shutdown();
  }

  /// Returns why there is no GPU, or "".
  std::string Open(const std::string& path) {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    missing_ = library == nullptr;
    if (missing_) return fmt::format("no NVIDIA driver is installed, since {} is not there", path);
    Find(library, "nvmlInit_v2", &f.init);
    Find(library, "nvmlShutdown", &f.shutdown);
    Find(library, "nvmlErrorString", &f.error_string);
    Find(library, "nvmlSystemGetDriverVersion", &f.driver_version);
    Find(library, "nvmlSystemGetCudaDriverVersion_v2", &f.cuda_version);
    Find(library, "nvmlDeviceGetCount_v2", &f.count);
    Find(library, "nvmlDeviceGetHandleByIndex_v2", &f.by_index);
    Find(library, "nvmlDeviceGetUUID", &f.uuid);
    Find(library, "nvmlDeviceGetName", &f.name);
    Find(library, "nvmlDeviceGetMemoryInfo", &f.memory);
    Find(library, "nvmlDeviceGetCudaComputeCapability", &f.capability);
    Find(library, "nvmlDeviceGetPciInfo_v3", &f.pci);
    Find(library, "nvmlDeviceGetMigMode", &f.mig_mode);
    Find(library, "nvmlDeviceGetMaxMigDeviceCount", &f.max_mig_devices);
    Find(library, "nvmlDeviceGetMigDeviceHandleByIndex", &f.mig_device);
    Find(library, "nvmlDeviceGetTopologyCommonAncestor", &f.common_ancestor);
    Find(library, "nvmlDeviceGetP2PStatus", &f.peer_status);
    if (f.init == nullptr || f.shutdown == nullptr || f.driver_version == nullptr ||
        f.cuda_version == nullptr || f.count == nullptr || f.by_index == nullptr ||
        f.uuid == nullptr || f.name == nullptr || f.memory == nullptr || f.capability == nullptr ||
        f.pci == nullptr) {
      return fmt::format("{} is of a driver that is too old: install driver 580 or newer", path);
    }
    const Return code = f.init();
    if (code == nvml::kDriverNotLoaded) {
      return "the NVIDIA driver is installed, but its kernel module is not loaded, or the GPU is "
             "not passed to this container";
    }
    if (code != nvml::kSuccess) {
      return fmt::format("the NVIDIA driver does not start: {}", Explain(code));
    }
    initialised_ = true;
    return "";
  }

  std::string Explain(Return code) const {
    const char* const text = f.error_string == nullptr ? nullptr : f.error_string(code);
    return text == nullptr ? fmt::format("NVML error {}", code)
                           : fmt::format("{} (NVML error {})", Printable(text, 100), code);
  }

  bool missing() const { return missing_; }

  nvml::Functions f;

 private:
  bool missing_ = false;
  bool initialised_ = false;
};

class GpuProbe {
 public:
  GpuProbe(const ProbeOptions& options, Topology* topology)
      : options_(options), topology_(*topology) {}

  Status Run() {
    topology_.no_gpu_reason = library_.Open(options_.nvml_library);
    if (library_.missing() && options_.gpu_without_nvml) return AskWithoutNvml();
    if (!topology_.no_gpu_reason.empty()) return {};
    PASSEL_RETURN_IF_ERROR(ReadVersions());
    unsigned count = 0;
    PASSEL_RETURN_IF_ERROR(Check(f_.count(&count), "count the GPUs"));
    if (count > static_cast<unsigned>(kMaxGpus)) {
      return Unavailable(
          fmt::format("this machine has {} GPUs, and passel knows up to {}", count, kMaxGpus));
    }
    if (count == 0) topology_.no_gpu_reason = "the NVIDIA driver is there, but no GPU";
    for (unsigned i = 0; i < count; ++i) PASSEL_RETURN_IF_ERROR(ReadGpu(i));
    ReadLinks();
    return {};
  }

 private:
  // The driver's other library may be there all the same.
  Status AskWithoutNvml() {
    const Status found = options_.gpu_without_nvml(&topology_);
    if (found.ok()) {
      topology_.without_nvml = true;
      topology_.no_gpu_reason.clear();
      return {};
    }
    const std::string reason = Printable(
        fmt::format("{}; the GPU plugin says: {}", topology_.no_gpu_reason, found.message()),
        kMaxReasonBytes - 3);  // "..." may follow
    if (found.code() == Code::kUnavailable) return Unavailable(reason);
    topology_.no_gpu_reason = reason;
    return {};
  }

  Status Check(Return code, std::string_view what) const {
    if (code == nvml::kSuccess) return {};
    return Unavailable(fmt::format("the NVIDIA driver cannot {}: {}; see what nvidia-smi says",
                                   what, library_.Explain(code)));
  }

  Status ReadVersions() {
    std::array<char, nvml::kTextBytes> text{};
    PASSEL_RETURN_IF_ERROR(
        Check(f_.driver_version(text.data(), text.size() - 1), "tell its version"));
    topology_.driver_version = Printable(text.data(), text.size());
    int version = 0;
    PASSEL_RETURN_IF_ERROR(Check(f_.cuda_version(&version), "tell which CUDA it supports"));
    topology_.cuda_version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    return {};
  }

  Status ReadText(Return (*get)(Device, char*, unsigned), Device device, std::string_view what,
                  std::string* out) const {
    std::array<char, nvml::kTextBytes> text{};
    PASSEL_RETURN_IF_ERROR(Check(get(device, text.data(), text.size() - 1), what));
    *out = Printable(text.data(), text.size());
    return {};
  }

  Status ReadGpu(unsigned index) {
    const std::string of = fmt::format(" of GPU {}", index);
    Device device = nullptr;
    PASSEL_RETURN_IF_ERROR(Check(f_.by_index(index, &device), fmt::format("open GPU {}", index)));
    Gpu gpu;
    gpu.index = static_cast<int>(index);
    PASSEL_RETURN_IF_ERROR(ReadText(f_.uuid, device, "tell the UUID" + of, &gpu.uuid));
    PASSEL_RETURN_IF_ERROR(ReadText(f_.name, device, "tell the name" + of, &gpu.name));
    nvml::Memory memory{};
    PASSEL_RETURN_IF_ERROR(Check(f_.memory(device, &memory), "tell the memory" + of));
    gpu.memory_bytes = memory.total;
    int major = 0, minor = 0;
    PASSEL_RETURN_IF_ERROR(
        Check(f_.capability(device, &major, &minor), "tell the compute capability" + of));
    gpu.compute_capability = major * 10 + minor;
    nvml::PciInfo pci{};
    PASSEL_RETURN_IF_ERROR(Check(f_.pci(device, &pci), "tell the PCI address" + of));
    gpu.pci_address = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    gpu.numa_node = NodeOf(gpu.pci_address);
    PASSEL_RETURN_IF_ERROR(ReadInstances(device, of, &gpu));
    devices_.push_back(device);
    topology_.gpus.push_back(std::move(gpu));
    return {};
  }

  // The kernel says -1 where it does not know.
  std::optional<int> NodeOf(const std::string& pci_address) const {
    std::ifstream file(
        fmt::format("{}/sys/bus/pci/devices/{}/numa_node", options_.root, pci_address));
    int node = -1;
    if (!(file >> node) || node < 0 || node > 65535) return std::nullopt;
    return node;
  }

  Status ReadInstances(Device device, const std::string& of, Gpu* gpu) const {
    if (f_.mig_mode == nullptr || f_.max_mig_devices == nullptr || f_.mig_device == nullptr) {
      return {};  // of a driver older than MIG
    }
    unsigned current = 0, pending = 0;
    const Return code = f_.mig_mode(device, &current, &pending);
    if (code == nvml::kNotSupported) return {};
    PASSEL_RETURN_IF_ERROR(Check(code, "tell the MIG mode" + of));
    gpu->mig_enabled = current != 0;
    if (!gpu->mig_enabled) return {};
    unsigned most = 0;
    PASSEL_RETURN_IF_ERROR(
        Check(f_.max_mig_devices(device, &most), "count the MIG instances" + of));
    for (unsigned i = 0; i < most && i < static_cast<unsigned>(kMaxMigInstances); ++i) {
      Device child = nullptr;
      // Places without an instance are not found.
      if (f_.mig_device(device, i, &child) != nvml::kSuccess) continue;
      MigInstance instance;
      const std::string what = fmt::format(" of MIG instance {}{}", i, of);
      PASSEL_RETURN_IF_ERROR(ReadText(f_.uuid, child, "tell the UUID" + what, &instance.uuid));
      PASSEL_RETURN_IF_ERROR(ReadText(f_.name, child, "tell the name" + what, &instance.name));
      nvml::Memory memory{};
      PASSEL_RETURN_IF_ERROR(Check(f_.memory(child, &memory), "tell the memory" + what));
      instance.memory_bytes = memory.total;
      gpu->mig_instances.push_back(std::move(instance));
    }
    return {};
  }

  // What is not told stays unknown: no decision needs it.
  void ReadLinks() {
    for (std::size_t a = 0; a < devices_.size(); ++a) {
      for (std::size_t b = a + 1; b < devices_.size(); ++b) {
        GpuLink link;
        link.first = static_cast<int>(a);
        link.second = static_cast<int>(b);
        link.pcie_path = PathBetween(devices_[a], devices_[b]);
        link.nvlink = Peer(a, b, nvml::kNvlink);
        link.peer_access = Peer(a, b, nvml::kRead) && Peer(a, b, nvml::kWrite);
        link.peer_atomics = link.peer_access && Peer(a, b, nvml::kAtomics);
        topology_.links.push_back(std::move(link));
      }
    }
  }

  std::string PathBetween(Device a, Device b) const {
    int level = -1;
    if (f_.common_ancestor == nullptr || f_.common_ancestor(a, b, &level) != nvml::kSuccess) {
      return "";
    }
    switch (level) {
      case nvml::kInternal:
      case nvml::kSingle:
        return "PIX";
      case nvml::kMultiple:
        return "PXB";
      case nvml::kHostBridge:
        return "PHB";
      case nvml::kNode:
        return "NODE";
      case nvml::kSystem:
        return "SYS";
      default:
        return "";
    }
  }

  // In both directions.
  bool Peer(std::size_t a, std::size_t b, nvml::Peer capability) const {
    const auto one_way = [&](Device from, Device to) {
      int status = -1;
      return f_.peer_status != nullptr &&
             f_.peer_status(from, to, capability, &status) == nvml::kSuccess &&
             status == nvml::kPeerOk;
    };
    return one_way(devices_[a], devices_[b]) && one_way(devices_[b], devices_[a]);
  }

  const ProbeOptions& options_;
  Topology& topology_;
  Library library_;
  const nvml::Functions& f_ = library_.f;
  std::vector<Device> devices_;  // [index]
};

}  // namespace

Status ProbeGpus(const ProbeOptions& options, Topology* topology) {
  return GpuProbe(options, topology).Run();
}

}  // namespace passel
