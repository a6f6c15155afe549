#include "tools/passel/devices.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "cluster/device.h"

namespace passel {
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
Status CheckFilters(const Task& task) {
  if (task.flags.device_filters.empty()) return {};
  std::vector<Device> filters;
  for (const std::string& text : task.flags.device_filters) {
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
                    index, task.id.ToString(), job, index));
  };
  PASSEL_RETURN_IF_ERROR(needs(task.id.job, task.id.index));
  if (task.id.job == "ps") return {};
  for (int ps = 0; ps < task.spec.num_tasks("ps"); ++ps) PASSEL_RETURN_IF_ERROR(needs("ps", ps));
  return {};
}

}  // namespace

Status CheckDevices(const Task& task) {
  const TaskFlags& f = task.flags;
  if (f.per_process_gpu_memory_fraction &&
      !(*f.per_process_gpu_memory_fraction > 0 && *f.per_process_gpu_memory_fraction <= 1)) {
    return InvalidArgument(
        fmt::format("--per_process_gpu_memory_fraction is above 0 and up to 1, not {}: change it",
                    *f.per_process_gpu_memory_fraction));
  }
  PASSEL_RETURN_IF_ERROR(CheckFilters(task));
  if (task.gpu && !f.allow_soft_placement) {
    return InvalidArgument(
        fmt::format("{} is to compute on gpu:{} (--num_gpus {}), but this build computes on CPUs "
                    "only: use --num_gpus 0, or --allow_soft_placement",
                    task.id.ToString(), *task.gpu, f.num_gpus));
  }
  if (task.gpu) {
    LogWarning("{} computes on the CPU, not on gpu:{} (--num_gpus {}): this build has no GPU code",
               task.id.ToString(), *task.gpu, f.num_gpus);
  }
  if (f.per_process_gpu_memory_fraction) {
    LogWarning("--per_process_gpu_memory_fraction {} has no effect: {} uses no GPU",
               *f.per_process_gpu_memory_fraction, task.id.ToString());
  }
  return {};
}

void LogDevicePlacement(const Task& task, const StorePlan& plan) {
  LogInfo("global_step: {}", DeviceOf("ps", 0).ToString());
  for (VarId id = 0; id < plan.variables.size(); ++id) {
    LogInfo("{}: {}", plan.variables[id].name, DeviceOf("ps", plan.variables[id].shard).ToString());
  }
  LogInfo("forward and backward pass: {}", DeviceOf(task.id.job, task.id.index).ToString());
}

}  // namespace passel
