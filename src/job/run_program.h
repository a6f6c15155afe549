// run_program.h - a job whose workers are a program of somebody else, with its own model and loop:
// all of it, or, of a job on several hosts, what is on this one.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/cluster_part.h"
#include "job/job_config.h"
#include "job/launch_setup.h"
#include "job/report.h"
#include "job/train_settings.h"

namespace passel::job {

struct ProgramToRun {
  std::vector<std::string> command;   ///< the first one is looked for in PATH
  std::vector<std::string> settings;  ///< "NAME=VALUE", which the program may overrule
  TaskSettings cluster;               ///< the lists and what goes with them
  std::optional<ClusterPart> part;    ///< by PrepareProgram(): they name a cluster
  bool counts_given = false;          ///< --ps, --workers or --max_workers were typed
};

/// As CheckTrainSettings() and SetUpLaunch(). Workers get the processors of this host in equal
/// shares. Errors: also kInvalidArgument for a command that is not there.
Result<LaunchSetup> PrepareProgram(TrainSettings* settings, JobConfig* config,
                                   ProgramToRun* program);

/// Starts ps and workers, looks after them, says how it went, writes the report. To be called as
/// RunJob(). Errors: what kept the job from beginning; the rest is in the report.
Result<JobReport> RunProgram(const TrainSettings& settings, const JobConfig& config,
                             const LaunchSetup& setup, const ProgramToRun& program,
                             std::int64_t program_start_ns);

}  // namespace passel::job
