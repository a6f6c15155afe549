// worker_task.h - `passel task --job_name worker`: trains on the arenas of its ps tasks.

#pragma once

#include "job/job_config.h"
#include "job/task.h"

namespace passel::job {

/// Returns the exit code.
int RunWorkerTask(Task& task, JobConfig& config);

}  // namespace passel::job
