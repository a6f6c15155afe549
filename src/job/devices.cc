#include "job/devices.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "cluster/device.h"
#include "cluster/gpu_choice.h"
#include "compute/accelerator_loader.h"
#include "job/probe_child.h"

namespace passel::job {
namespace {

Device DeviceOf(const std::string& job, int index) {
  Device device;
  device.job = job;
  device.replica = 0;
  device.task = index;
  device.type = Device::Type::kCpu;
  device.index = 0;
  return device;
}

// Whoever trains needs every ps.
Status CheckFilters(const DeviceSettings& flags, const TaskId& id, const ClusterSpec& spec) {
  if (flags.device_filters.empty()) return {};
  std::vector<Device> filters;
  for (const std::string& text : flags.device_filters) {
    Result<Device> filter = ParseDevice(text);
    if (!filter.ok()) return filter.status().WithContext("--device_filters");
    filters.push_back(std::move(*filter));
  }
  const auto needs = [&](const std::string& job, int index) -> Status {
    // Which processor of a task a filter names makes no difference: tasks are waited for whole.
    const Device device = DeviceOf(job, index);
    for (Device filter : filters) {
      filter.type.reset();
      filter.index.reset();
      if (MatchesFilter(device, filter)) return {};
    }
    return InvalidArgument(
        fmt::format("--device_filters leave out {}/{}, which {} needs: add /job:{}/task:{}", job,
                    index, id.ToString(), job, index));
  };
  PASSEL_RETURN_IF_ERROR(needs(id.job, id.index));
  if (id.job == "ps") return {};
  for (int ps = 0; ps < spec.num_tasks("ps"); ++ps) PASSEL_RETURN_IF_ERROR(needs("ps", ps));
  return {};
}

Status CheckFraction(const DeviceSettings& flags, const TypedNumbers& typed) {
  if (!flags.per_process_gpu_memory_fraction) return {};
  return CheckShare("--per_process_gpu_memory_fraction", *flags.per_process_gpu_memory_fraction,
                    typed);
}

// "--num_gpus 1", or "--num_gpus 1 of preset dist-mnist".
std::string NumGpus(const DeviceSettings& flags) {
  return fmt::format("--num_gpus {}{}{}", flags.num_gpus,
                     flags.num_gpus_origin.empty() ? "" : " of ", flags.num_gpus_origin);
}

// --device of a task that trains with others. One that trains alone is looked at by train.
Status CheckProcessor(const DeviceSettings& flags, const ResolvedConfig& config) {
  PASSEL_ASSIGN_OR_RETURN(const DeviceRequest device, ParseDeviceRequest(flags.device));
  if (device.kind != DeviceRequest::Kind::kCuda || !config.task || config.task->job == "ps" ||
      config.task->job == "evaluator") {
    return {};
  }
  const std::string why = WhyNoGpu();
  if (why.empty()) return {};
  return FailedPrecondition(
      fmt::format("{} is to compute on a GPU (--device {}), but {}; or use --device cpu",
                  config.task->ToString(), flags.device, why));
}

}  // namespace

std::string WhyNoGpu() {
  const Result<Topology> machine = ProbeInChild(Deadline::After(kProbeLimit));
  if (!machine.ok()) return machine.status().message();
  if (machine->gpus.empty()) return machine->no_gpu_reason;
  const Result<std::string> plugin = FindAcceleratorPlugin();
  return plugin.ok() ? "" : plugin.status().message();
}

int GpusForRanks(const DeviceSettings& flags) {
  const Result<DeviceRequest> request = ParseDeviceRequest(flags.device);
  if (!request.ok() || request->kind == DeviceRequest::Kind::kCpu || !request->uuid.empty() ||
      !FindAcceleratorPlugin().ok()) {
    return 0;
  }
  const Result<Topology> machine = ProbeInChild(Deadline::After(kProbeLimit));
  if (!machine.ok()) return 0;  // whoever opens the GPU says why
  const int there = static_cast<int>(machine->gpus.size());
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr && machine->without_nvml) LogWarning("{}", kWithoutNvml);
  if (visible == nullptr) return there;
  const std::string_view list = visible;
  if (list.empty()) return 0;
  const int listed = 1 + static_cast<int>(std::count(list.begin(), list.end(), ','));
  // Without NVML the first is known to be there, and whoever opens another finds out.
  return machine->without_nvml ? listed : std::min(there, listed);
}

Status CheckDevices(const DeviceSettings& flags, const TypedNumbers& typed,
                    const ResolvedConfig& config) {
  PASSEL_RETURN_IF_ERROR(CheckFraction(flags, typed));
  const TaskId id = config.task.value_or(TaskId{"worker", 0});
  // Nobody can say what is left out of a cluster that is seen in part.
  if (!config.partial) PASSEL_RETURN_IF_ERROR(CheckFilters(flags, id, config.cluster));
  PASSEL_RETURN_IF_ERROR(CheckProcessor(flags, config));
  if (!config.gpu || flags.allow_soft_placement) return {};
  const std::string why = WhyNoGpu();
  return why.empty() ? Status() : CheckSoftPlacement(flags, id.ToString(), config.gpu, why);
}

Status CheckSoftPlacement(const DeviceSettings& flags, const std::string& who,
                          const std::optional<int>& gpu, const std::string& reason) {
  if (!gpu || flags.allow_soft_placement) return {};
  return InvalidArgument(
      fmt::format("{} is to compute on gpu:{} ({}), but {}: use --num_gpus 0, or "
                  "--allow_soft_placement",
                  who, *gpu, NumGpus(flags), reason));
}

Status CheckJobDevices(const DeviceSettings& flags, const TypedNumbers& typed, int workers,
                       bool gpu_per_worker) {
  PASSEL_RETURN_IF_ERROR(CheckFraction(flags, typed));
  PASSEL_RETURN_IF_ERROR(ParseDeviceRequest(flags.device).status());
  PASSEL_RETURN_IF_ERROR(GpuOfTask(0, flags.num_gpus).status());
  return gpu_per_worker ? CheckGpuPerWorker(flags.num_gpus, workers) : Status();
}

std::vector<std::string> DeviceWarnings(const DeviceSettings& flags, const std::string& who,
                                        const std::string& gpus, const std::string& reason) {
  std::vector<std::string> warnings;
  if (!gpus.empty()) {
    warnings.push_back(
        fmt::format("{} on the CPU, not on {} ({}): {}", who, gpus, NumGpus(flags), reason));
  }
  if (flags.per_process_gpu_memory_fraction && !flags.fraction_of_preset) {
    warnings.push_back(
        fmt::format("--per_process_gpu_memory_fraction {} has no effect: no GPU is used",
                    *flags.per_process_gpu_memory_fraction));
  }
  return warnings;
}

void LogDevicePlacement(const Task& task, const StorePlan& plan) {
  LogInfo("global_step: {}", DeviceOf("ps", 0).ToString());
  for (VarId id = 0; id < plan.variables.size(); ++id) {
    LogInfo("{}: {}", plan.variables[id].name, DeviceOf("ps", plan.variables[id].shard).ToString());
  }
  LogInfo("forward and backward pass: {}", DeviceOf(task.id.job, task.id.index).ToString());
}

}  // namespace passel::job
