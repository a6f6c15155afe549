// worker_start.h - how a worker task attaches to its job, and waits until that has values.

#pragma once

#include "base/deadline.h"
#include "base/status.h"
#include "job/job_config.h"
#include "job/task.h"
#include "shm/attached_job.h"
#include "store/parameter_store.h"

namespace passel::job {

shm::AttachOptions AttachOptionsOf(const Task& task, const JobConfig& config);

/// Until the chief has initialised the variables, and others let this task begin. Says every 10 s
/// whom it waits for. Errors: kDeadlineExceeded, naming them; those of the store.
Status AwaitFirstValues(const Task& task, const JobConfig& config, Deadline deadline,
                        ParameterStore& store);

}  // namespace passel::job
