// run_task.h - one task of a cluster, whatever its role: checked, then run to its end.

#pragma once

#include "base/status.h"
#include "cluster/resolve.h"
#include "job/job_config.h"
#include "job/task.h"

namespace passel::job {

/// Starts the log and checks what can be said of the settings before anything is waited for or
/// printed, for the task that `resolved` names, or the one that trains alone.
/// Errors: kInvalidArgument; those of StartLog().
Result<JobConfig> CheckTaskSettings(const Task& task, const ResolvedConfig& resolved);

/// Runs the task until it has ended, and where rank 0 starts the ps of its job, that too; logs what
/// went wrong. Returns the exit code. To be called on the main thread.
/// REQUIRES: CheckTaskSettings() gave `config`; resolved.distributed.
int RunTask(Task& task, const ResolvedConfig& resolved, JobConfig& config);

}  // namespace passel::job
