// ps_task.h - `passel task --job_name ps`: holds one shard until its workers are done.

#pragma once

#include "tools/passel/job_config.h"
#include "tools/passel/task.h"

namespace passel {

/// Returns the exit code.
int RunPsTask(Task& task, const JobConfig& config);

}  // namespace passel
