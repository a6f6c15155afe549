#include "job/device_settings.h"

#include <fmt/core.h>

namespace passel::job {

std::vector<std::string> ToArguments(const DeviceSettings& f) {
  std::vector<std::string> arguments = {fmt::format("--num_gpus={}", f.num_gpus)};
  if (!f.allow_soft_placement) arguments.emplace_back("--noallow_soft_placement");
  if (f.log_device_placement) arguments.emplace_back("--log_device_placement");
  if (f.per_process_gpu_memory_fraction) {
    arguments.push_back(
        fmt::format("--per_process_gpu_memory_fraction={}", *f.per_process_gpu_memory_fraction));
  }
  return arguments;
}

}  // namespace passel::job
