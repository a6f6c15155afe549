#include "cluster/gpu_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "cluster/text.h"
#include "cluster/topology_json.h"

namespace passel {
namespace {

ComputeDevice WholeGpu(const Gpu& gpu) {
  return {gpu.index, std::nullopt, gpu.uuid, gpu.name, gpu.memory_bytes};
}

ComputeDevice InstanceOf(const Gpu& gpu, std::size_t index) {
  const MigInstance& instance = gpu.mig_instances[index];
  return {gpu.index, static_cast<int>(index), instance.uuid, instance.name, instance.memory_bytes};
}

// What a process can be given: whole GPUs, or their instances.
std::vector<ComputeDevice> AllDevices(const Topology& topology) {
  std::vector<ComputeDevice> devices;
  for (const Gpu& gpu : topology.gpus) {
    if (!gpu.mig_enabled) devices.push_back(WholeGpu(gpu));
    for (std::size_t i = 0; i < gpu.mig_instances.size(); ++i) {
      devices.push_back(InstanceOf(gpu, i));
    }
  }
  return devices;
}

bool IsUuidText(std::string_view text) {
  return text.starts_with("GPU-") || text.starts_with("MIG-");
}

std::string Range(std::size_t count) {
  return count == 1 ? "0" : fmt::format("0 to {}", count - 1);
}

// "0:0 to 0:6"
std::string InstanceRange(const Gpu& gpu) {
  const std::size_t count = gpu.mig_instances.size();
  return count == 1 ? fmt::format("{}:0", gpu.index)
                    : fmt::format("{}:0 to {}:{}", gpu.index, gpu.index, count - 1);
}

class Chooser {
 public:
  Chooser(const Topology& topology, std::string_view flag) : topology_(topology), flag_(flag) {}

  /// One element of a list.
  Result<ComputeDevice> Find(std::string_view text) const {
    if (IsUuidText(text)) return FindUuid(text);
    const std::size_t colon = text.find(':');
    const std::optional<int> index = ParseDecimal(text.substr(0, colon), 999'999);
    const std::optional<int> instance =
        colon == std::string_view::npos ? 0 : ParseDecimal(text.substr(colon + 1), 999'999);
    if (!index || !instance) {
      return InvalidArgument(fmt::format(
          "{} takes all, or a list of GPU indices (2), MIG instances (2:0) and UUIDs (GPU-..., "
          "MIG-...), not {}: see  passel topology",
          flag_, Quoted(text)));
    }
    if (static_cast<std::size_t>(*index) >= topology_.gpus.size()) {
      return InvalidArgument(
          fmt::format("{} names GPU {}, but {} has GPUs {}: see  passel topology", flag_, *index,
                      topology_.origin, Range(topology_.gpus.size())));
    }
    const Gpu& gpu = topology_.gpus[static_cast<std::size_t>(*index)];
    if (colon == std::string_view::npos) return Whole(gpu);
    const auto at = static_cast<std::size_t>(*instance);
    if (at < gpu.mig_instances.size()) return InstanceOf(gpu, at);
    return InvalidArgument(
        gpu.mig_instances.empty()
            ? fmt::format(
                  "{} names MIG instance {} of GPU {}, which has none: name the GPU itself, "
                  "or make instances with  nvidia-smi mig",
                  flag_, *instance, gpu.index)
            : fmt::format("{} names MIG instance {} of GPU {}, which has {}: name one of them",
                          flag_, *instance, gpu.index, InstanceRange(gpu)));
  }

  /// OK if the GPU code runs on it.
  Status CheckCapability(const ComputeDevice& device) const {
    const int capability = topology_.gpus[static_cast<std::size_t>(device.gpu)].compute_capability;
    if (capability >= kMinComputeCapability) return {};
    return InvalidArgument(fmt::format(
        "GPU {} ({}) has compute capability {}.{}, and {}.{} or more is needed: use another GPU, "
        "or --device cpu",
        device.Index(), device.name, capability / 10, capability % 10, kMinComputeCapability / 10,
        kMinComputeCapability % 10));
  }

 private:
  Result<ComputeDevice> Whole(const Gpu& gpu) const {
    if (!gpu.mig_enabled) return WholeGpu(gpu);
    return InvalidArgument(
        gpu.mig_instances.empty()
            ? fmt::format("{} names GPU {}, which has MIG enabled and no instance, so that nothing "
                          "can run on it: make instances with  nvidia-smi mig, or disable MIG",
                          flag_, gpu.index)
            : fmt::format("{} names GPU {}, which is split by MIG, so that only its {} instances "
                          "can compute: name {} of them as {}, or use all",
                          flag_, gpu.index, gpu.mig_instances.size(),
                          gpu.mig_instances.size() == 1 ? "the one" : "some", InstanceRange(gpu)));
  }

  Result<ComputeDevice> FindUuid(std::string_view text) const {
    std::vector<ComputeDevice> found;
    const Gpu* parent = nullptr;
    const auto matches = [&](const std::string& uuid) { return uuid.starts_with(text); };
    for (const Gpu& gpu : topology_.gpus) {
      if (matches(gpu.uuid)) {
        found.push_back(WholeGpu(gpu));
        parent = &gpu;
      }
      for (std::size_t i = 0; i < gpu.mig_instances.size(); ++i) {
        if (matches(gpu.mig_instances[i].uuid)) found.push_back(InstanceOf(gpu, i));
      }
    }
    // Whole UUIDs win over beginnings.
    for (const ComputeDevice& device : found) {
      if (device.uuid != text) continue;
      if (device.instance) return device;
      return Whole(topology_.gpus[static_cast<std::size_t>(device.gpu)]);
    }
    if (found.empty()) {
      return InvalidArgument(
          fmt::format("{} names {}, but no GPU or MIG instance of {} has that "
                      "UUID: see  passel topology",
                      flag_, Quoted(text), topology_.origin));
    }
    if (found.size() > 1) {
      return InvalidArgument(fmt::format(
          "{} names {}, with which the UUIDs of {} devices of {} begin: write more of it", flag_,
          Quoted(text), found.size(), topology_.origin));
    }
    return parent != nullptr ? Whole(*parent) : Result<ComputeDevice>(found[0]);
  }

  const Topology& topology_;
  const std::string_view flag_;
};

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(Trim(text.substr(0, comma)));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// What CUDA_VISIBLE_DEVICES leaves, by CUDA's rules: the list ends at the first element that names
// nothing.
Result<std::vector<ComputeDevice>> Visible(const Topology& topology,
                                           const CudaEnvironment& environment) {
  // Without NVML the GPU is one that the list has left, whatever number it has there.
  if (!environment.visible_devices || topology.without_nvml) return AllDevices(topology);
  const std::string& list = *environment.visible_devices;
  std::vector<ComputeDevice> devices;
  const Chooser chooser(topology, "CUDA_VISIBLE_DEVICES");
  if (Trim(list).empty()) return devices;
  // All of them; a process of CUDA's takes the first alone.
  const auto add_instances = [&](const Gpu& gpu) {
    for (std::size_t i = 0; i < gpu.mig_instances.size(); ++i) {
      devices.push_back(InstanceOf(gpu, i));
    }
  };
  for (const std::string_view part : Split(list)) {
    if (IsUuidText(part)) {
      const auto split =
          std::find_if(topology.gpus.begin(), topology.gpus.end(),
                       [&](const Gpu& g) { return g.mig_enabled && g.uuid == part; });
      if (split != topology.gpus.end()) {
        add_instances(*split);
        continue;
      }
      Result<ComputeDevice> device = chooser.Find(part);
      if (!device.ok()) break;
      devices.push_back(std::move(*device));
      continue;
    }
    const std::optional<int> index = ParseDecimal(part, kMaxGpus - 1);
    if (!index || static_cast<std::size_t>(*index) >= topology.gpus.size()) break;
    const bool alike = std::all_of(topology.gpus.begin(), topology.gpus.end(),
                                   [&](const Gpu& g) { return g.name == topology.gpus[0].name; });
    if (!alike && environment.device_order != "PCI_BUS_ID") {
      return InvalidArgument(fmt::format(
          "CUDA_VISIBLE_DEVICES is {}, and where GPUs differ CUDA counts the fastest first, which "
          "cannot be told from here: set CUDA_DEVICE_ORDER=PCI_BUS_ID too, or use UUIDs",
          Quoted(list)));
    }
    const Gpu& gpu = topology.gpus[static_cast<std::size_t>(*index)];
    if (gpu.mig_enabled) {
      add_instances(gpu);
    } else {
      devices.push_back(WholeGpu(gpu));
    }
  }
  return devices;
}

bool Contains(const std::vector<ComputeDevice>& devices, const ComputeDevice& device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

Result<DeviceChoice> ChooseAll(const Topology& topology, std::vector<ComputeDevice> visible,
                               const Chooser& chooser, std::string_view flag) {
  DeviceChoice choice;
  for (const Gpu& gpu : topology.gpus) {
    if (gpu.mig_enabled && gpu.mig_instances.empty()) {
      choice.warnings.push_back(fmt::format(
          "GPU {} is left out: it has MIG enabled and no instance, so that nothing can run on it",
          gpu.index));
    }
  }
  Status first_problem;
  for (ComputeDevice& device : visible) {
    if (Contains(choice.devices, device)) continue;  // twice in CUDA_VISIBLE_DEVICES
    if (Status status = chooser.CheckCapability(device); !status.ok()) {
      choice.warnings.push_back(
          fmt::format("GPU {} is left out: {}", device.Index(), status.message()));
      if (first_problem.ok()) first_problem = std::move(status);
      continue;
    }
    choice.devices.push_back(std::move(device));
  }
  if (!choice.devices.empty()) return choice;
  if (!first_problem.ok()) return first_problem;
  return NotFound(
      fmt::format("{} all finds no GPU that can compute on {}: make MIG instances with  "
                  "nvidia-smi mig, or disable MIG",
                  flag, topology.origin));
}

}  // namespace

Result<DeviceRequest> ParseDeviceRequest(std::string_view text) {
  constexpr std::string_view kCudaWith = "cuda:";
  if (text == "auto") return DeviceRequest{DeviceRequest::Kind::kAuto, ""};
  if (text == "cpu") return DeviceRequest{DeviceRequest::Kind::kCpu, ""};
  if (text == "cuda") return DeviceRequest{DeviceRequest::Kind::kCuda, ""};
  if (text.starts_with(kCudaWith) && IsUuidText(text.substr(kCudaWith.size()))) {
    return DeviceRequest{DeviceRequest::Kind::kCuda, std::string(text.substr(kCudaWith.size()))};
  }
  return InvalidArgument(fmt::format(
      "--device is auto, cpu, cuda or cuda:UUID with a UUID that begins with GPU- or MIG-, not {}: "
      "see  passel topology",
      Quoted(text)));
}

std::string ComputeDevice::Index() const {
  return instance ? fmt::format("{}:{}", gpu, *instance) : std::to_string(gpu);
}

CudaEnvironment CudaEnvironment::OfThisProcess() {
  CudaEnvironment environment;
  if (const char* const value = std::getenv("CUDA_VISIBLE_DEVICES")) {
    environment.visible_devices = value;
  }
  if (const char* const value = std::getenv("CUDA_DEVICE_ORDER")) environment.device_order = value;
  return environment;
}

namespace {

// What stands behind the flag: "--gpus 0,2", but "--device cuda:GPU-1".
std::string Typed(std::string_view flag, std::string_view spec) {
  return (flag == "--device" ? " cuda:" : " ") + Printable(spec, 64);
}

}  // namespace

Result<DeviceChoice> ChooseDevices(const Topology& topology, std::string_view spec,
                                   const CudaEnvironment& environment, std::string_view flag) {
  if (topology.gpus.empty()) {
    // Whoever said "--device cuda" did not say "all".
    const bool said = flag == "--gpus" || Trim(spec) != "all";
    return NotFound(fmt::format("{}{} needs a GPU, and {} has none ({}): use --device cpu instead",
                                flag, said ? Typed(flag, spec) : "", topology.origin,
                                topology.no_gpu_reason));
  }
  PASSEL_ASSIGN_OR_RETURN(std::vector<ComputeDevice> visible, Visible(topology, environment));
  if (visible.empty() && environment.visible_devices && !topology.without_nvml) {
    return NotFound(fmt::format(
        "{}{} needs a GPU, and CUDA_VISIBLE_DEVICES={} leaves none of the {} of {}: change or "
        "unset it, or use --device cpu instead",
        flag, Typed(flag, spec), Quoted(*environment.visible_devices), topology.gpus.size(),
        topology.origin));
  }
  const Chooser chooser(topology, flag);
  if (Trim(spec) == "all") return ChooseAll(topology, std::move(visible), chooser, flag);
  DeviceChoice choice;
  for (const std::string_view part : Split(spec)) {
    PASSEL_ASSIGN_OR_RETURN(const ComputeDevice device, chooser.Find(part));
    if (Contains(choice.devices, device)) {
      return InvalidArgument(
          fmt::format("{} names GPU {} ({}) twice: name it once, and use --workers_per_gpu 2 for "
                      "two workers on each",
                      flag, device.Index(), device.uuid));
    }
    if (!Contains(visible, device)) {
      return InvalidArgument(fmt::format(
          "{} names GPU {} ({}), which CUDA_VISIBLE_DEVICES={} leaves out: name another, or change "
          "or unset it",
          flag, device.Index(), device.uuid, Quoted(*environment.visible_devices)));
    }
    PASSEL_RETURN_IF_ERROR(chooser.CheckCapability(device));
    choice.devices.push_back(device);
  }
  return choice;
}

}  // namespace passel
