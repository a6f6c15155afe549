// run_program.h - a job on this host whose workers are a program of somebody else, with its own
// model and loop.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/job_config.h"
#include "job/launch_setup.h"
#include "job/report.h"
#include "job/train_settings.h"

namespace passel::job {

struct ProgramToRun {
  std::vector<std::string> command;   ///< the first one is looked for in PATH
  std::vector<std::string> settings;  ///< "NAME=VALUE", which the program may overrule
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
