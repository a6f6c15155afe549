// launch_settings.h - the settings of `train` and `launch` alone that say on which GPUs workers
// compute and where they run.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace passel::job {

/// As given on the command line.
struct LaunchSettings {
  std::string gpus;  ///< "": --device decides
  std::optional<std::int64_t> workers_per_gpu;
  std::string bind = "auto";
  std::string topology;  ///< a file; "": this machine
  bool dry_run = false;
};

}  // namespace passel::job
