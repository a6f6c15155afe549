// device_settings.h - the settings about GPUs, the same for `train`, `launch` and `task`.

#pragma once

#include <optional>
#include <string>
#include <vector>

namespace passel::job {

struct DeviceSettings {
  std::string device = "auto";
  int num_gpus = 0;
  bool num_gpus_given =
      false;  ///< of `train` and `launch`: typed or in the file; 0 is the CPU then
  /// Who asked for num_gpus where nobody gave it: "preset dist-mnist"; else empty.
  std::string num_gpus_origin;
  bool allow_soft_placement = true;
  bool log_device_placement = false;
  std::optional<double> per_process_gpu_memory_fraction;
  bool fraction_of_preset = false;          ///< nobody asked for it: no word where it has no effect
  std::vector<std::string> device_filters;  ///< `task` alone
};

}  // namespace passel::job
