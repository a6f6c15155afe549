// launch_setup.h - from the settings of `train` to the plan of its tasks: reads the machine where
// that is needed, chooses GPUs, says in one line why there are none.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/launch_plan.h"
#include "cluster/topology.h"
#include "job/job_config.h"
#include "job/train_settings.h"

namespace passel::job {

struct LaunchSetup {
  Topology topology;
  LaunchPlan plan;   ///< of all that there may be: TrainSettings::max_workers
  int workers = 0;   ///< at first; with --gpus their number follows from the GPUs
  int num_gpus = 0;  ///< devices that the workers take in turn; 0: they compute on the CPU
  /// Whether a worker that cannot use its GPU goes on on the CPU: --device auto.
  bool may_fall_back = false;
  /// Why workers compute on the CPU although nobody asked for it, or how many GPUs there should
  /// be; "" if they do not. What is said of --num_gpus is in the warnings.
  std::string cpu_reason;
  /// Where the parameters are and what an update is made of; "" where workers compute on the CPU.
  std::string updates;
  std::vector<std::string> warnings;  ///< beside those of the plan; once for all workers
};

/// REQUIRES: CheckTrainSettings(&flags) gave `config`. Errors: kInvalidArgument, kNotFound; those
/// of ProbeInChild() and ReadTopology().
Result<LaunchSetup> SetUpLaunch(const TrainSettings& flags, const JobConfig& config);

/// What --dry_run prints.
std::string DescribeSetup(const LaunchSetup& setup);

/// A line for each warning; where workers compute on GPUs one about updates, and one for each of
/// them.
void LogSetup(const LaunchSetup& setup);

}  // namespace passel::job
