#include "tools/passel/device_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

namespace passel {

void AddDeviceFlags(CLI::App& command, DeviceFlags* f) {
  command
      .add_option("--device", f->device,
                  "auto: a GPU where one can be used, else the CPU, and a line that says why; cpu; "
                  "cuda: a GPU, or an error; cuda:UUID: that one")
      ->group("Devices")
      ->capture_default_str();
  command
      .add_option("--num_gpus", f->num_gpus,
                  "GPUs of this machine; worker i takes number i mod N. 0: the CPU")
      ->group("Devices")
      ->capture_default_str();
  command
      .add_flag("--allow_soft_placement,!--noallow_soft_placement", f->allow_soft_placement,
                "Compute on the CPU where there is no GPU, rather than fail. Default: true")
      ->default_str("true")
      ->group("Devices");
  command
      .add_flag("--log_device_placement", f->log_device_placement,
                "Log the device of every variable and of the computation")
      ->group("Devices");
  command
      .add_option("--per_process_gpu_memory_fraction", f->per_process_gpu_memory_fraction,
                  "Share of the GPU's memory for each task, above 0 and up to 1")
      ->group("Devices");
}

std::vector<std::string> ToArguments(const DeviceFlags& f) {
  std::vector<std::string> arguments = {fmt::format("--num_gpus={}", f.num_gpus)};
  if (!f.allow_soft_placement) arguments.emplace_back("--noallow_soft_placement");
  if (f.log_device_placement) arguments.emplace_back("--log_device_placement");
  if (f.per_process_gpu_memory_fraction) {
    arguments.push_back(
        fmt::format("--per_process_gpu_memory_fraction={}", *f.per_process_gpu_memory_fraction));
  }
  return arguments;
}

}  // namespace passel
