// train_job.h - a whole job on this host, from its settings to what it leaves.
//
//   PASSEL_ASSIGN_OR_RETURN(const JobConfig config, CheckTrainSettings(&settings));
//   PASSEL_ASSIGN_OR_RETURN(const LaunchSetup setup, SetUpLaunch(settings, config));
//   settings.workers = setup.workers;
//   PASSEL_ASSIGN_OR_RETURN(const JobReport report, RunJob(settings, config, setup));

#pragma once

#include <cstdint>

#include "base/status.h"
#include "job/job_config.h"
#include "job/launch_setup.h"
#include "job/report.h"
#include "job/train_settings.h"

namespace passel::job {

/// Finds and reads the data, starts the tasks (or trains in this process, without a ps), looks
/// after them, evaluates the last values, saves, prints the summary, writes the report. To be
/// called on the main thread, once in a process: SIGINT and SIGTERM end the job from then on.
/// `program_start_ns`: MonotonicNs() from which start-up is counted.
/// Errors: what kept training from beginning. What went wrong later is in the report, whose
/// exit_code is then not kExitDone.
Result<JobReport> RunJob(const TrainSettings& settings, const JobConfig& config,
                         const LaunchSetup& setup, std::int64_t program_start_ns);

}  // namespace passel::job
