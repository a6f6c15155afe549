// join_place.h - which place a worker takes that joins a job started by hand.

#pragma once

#include "base/status.h"
#include "job/task.h"

namespace passel::job {

/// Asks the job and gives the task the lowest place that nobody holds: first of those beyond the
/// lists of hosts, then of those whose worker died or left; and --max_workers of the job. A place
/// that was named (--task_index) stays. Waits up to --start_wait for the job to begin.
/// REQUIRES: task->job_id. Errors: kNotFound: no job; kResourceExhausted: no place is free;
/// kInvalidArgument: the job has another --max_workers than was named.
Status TakeFreePlace(Task* task);

}  // namespace passel::job
