// evaluator_task.h - `passel task --job_name evaluator`: follows the live values of a job.

#pragma once

#include "job/job_config.h"
#include "job/task.h"

namespace passel::job {

/// Evaluates on the test images every so often until the job has ended, and once more at its end;
/// one line on standard output each. Returns the exit code.
int RunEvaluatorTask(Task& task, JobConfig& config);

}  // namespace passel::job
