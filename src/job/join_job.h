// join_job.h - what every task that trains does to join its job, whoever computes its gradients.

#pragma once

#include "base/deadline.h"
#include "base/status.h"
#include "job/job_config.h"
#include "job/task.h"
#include "shm/attached_job.h"
#include "store/parameter_store.h"

namespace passel::job {

/// How this task meets the ps tasks of its job. REQUIRES: PrepareTask() was called, and it trains.
shm::AttachOptions AttachOptionsOf(const Task& task, const JobConfig& config);

/// Waits until the chief has written the first values, and those who train let this one begin; logs
/// whom it waits for every ten seconds. Errors: kDeadlineExceeded, naming the chief if it has
/// written nothing; kCancelled after Stop(); kAborted.
Status AwaitFirstValues(ParameterStore& store, const Task& task, const JobConfig& config,
                        Deadline deadline);

}  // namespace passel::job
