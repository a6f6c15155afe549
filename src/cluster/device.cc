#include "cluster/device.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "cluster/cluster_spec.h"
#include "cluster/text.h"

namespace passel {
namespace {

constexpr int kMaxIndex = ClusterSpec::kMaxTaskIndex;

bool Consume(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

/// Reads one field, without its slash, into `device`. False if it is wrong or comes again.
bool ParseField(std::string_view field, Device* device) {
  if (Consume(&field, "job:")) {
    if (!device->job.empty() || !IsJobName(field)) return false;
    device->job = field;
    return true;
  }
  for (const auto& [prefix, number] :
       {std::pair("replica:", &device->replica), std::pair("task:", &device->task)}) {
    if (!Consume(&field, prefix)) continue;
    if (number->has_value()) return false;
    *number = ParseDecimal(field, kMaxIndex);
    return number->has_value();
  }
  if (device->type) return false;
  const bool with_prefix = Consume(&field, "device:");
  if (Consume(&field, with_prefix ? "CPU" : "cpu")) {
    device->type = Device::Type::kCpu;
  } else if (Consume(&field, with_prefix ? "GPU" : "gpu")) {
    device->type = Device::Type::kGpu;
  } else {
    return false;
  }
  if (field.empty() || field == ":*") return true;
  if (!Consume(&field, ":")) return false;
  device->index = ParseDecimal(field, kMaxIndex);
  return device->index.has_value();
}

}  // namespace

Result<std::optional<int>> GpuOfTask(int task_index, int num_gpus) {
  PASSEL_CHECK(task_index >= 0, "task indices are not negative");
  if (num_gpus < 0) {
    return InvalidArgument(
        fmt::format("--num_gpus is {}: use the number of GPUs, or 0 for the CPU", num_gpus));
  }
  if (num_gpus == 0) return std::optional<int>();
  return std::optional(task_index % num_gpus);
}

Status CheckGpuPerWorker(int num_gpus, int num_workers) {
  if (num_gpus <= 0 || num_gpus >= num_workers) return {};
  return InvalidArgument("number of gpus is less than number of workers");
}

std::string Device::ToString() const {
  std::string text;
  if (!job.empty()) text += "/job:" + job;
  if (replica) text += fmt::format("/replica:{}", *replica);
  if (task) text += fmt::format("/task:{}", *task);
  if (type) text += *type == Type::kCpu ? "/cpu" : "/gpu";
  if (type && index) text += fmt::format(":{}", *index);
  return text;
}

Result<Device> ParseDevice(std::string_view text) {
  Device device;
  for (std::string_view rest = text; !rest.empty();) {
    const bool slash = Consume(&rest, "/");
    const std::size_t end = std::min(rest.find('/'), rest.size());
    if (!slash || !ParseField(rest.substr(0, end), &device)) {
      return InvalidArgument(
          fmt::format("{} is not a device: use fields as in /job:worker/replica:0/task:1/gpu:0, "
                      "each at most once",
                      Quoted(text)));
    }
    rest.remove_prefix(end);
  }
  return device;
}

bool MatchesFilter(const Device& device, const Device& filter) {
  const auto fits = [](const auto& wanted, const auto& actual) {
    return !wanted || wanted == actual;
  };
  return (filter.job.empty() || filter.job == device.job) && fits(filter.replica, device.replica) &&
         fits(filter.task, device.task) && fits(filter.type, device.type) &&
         fits(filter.index, device.index);
}

}  // namespace passel
