#include "tools/passel/launch_flags.h"

#include <CLI/CLI.hpp>

namespace passel {

void AddLaunchFlags(CLI::App& command, LaunchFlags* f) {
  const auto group = [](CLI::Option* option) { return option->group("Devices"); };
  group(command.add_option(
      "--gpus", f->gpus,
      "GPUs to compute on, one worker each: all, or a list of indices (0,2), MIG instances (0:1) "
      "and UUIDs, as passel topology shows them. Worker i computes on the one at place i modulo "
      "their number"));
  group(command.add_option("--workers_per_gpu", f->workers_per_gpu,
                           "Workers that share each of --gpus. Default: 1"));
  group(command.add_option(
            "--bind,--pin", f->bind,
            "Where workers run: none: anywhere; numa: on the NUMA node of their GPU (CPU workers: "
            "on the nodes in turn); core: on cores of their own; auto: GPU workers as numa, CPU "
            "workers as core, where the machine allows it"))
      ->capture_default_str();
  group(command.add_option("--topology", f->topology,
                           "With --dry_run: the machine that passel topology --json recorded in "
                           "this file, instead of this one"));
  group(command.add_flag("--dry_run", f->dry_run,
                         "Print where each task would run, with its GPU, processors and "
                         "environment, and end"));
}

}  // namespace passel
