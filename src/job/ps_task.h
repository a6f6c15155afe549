// ps_task.h - `passel task --job_name ps`: holds one shard until its workers are done.

#pragma once

#include "job/job_config.h"
#include "job/task.h"

namespace passel::job {

/// Returns the exit code.
int RunPsTask(Task& task, const JobConfig& config);

}  // namespace passel::job
