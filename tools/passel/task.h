// task.h - one task of a cluster: who it is, and what its kinds share.

#pragma once

#include <string>

#include "base/status.h"
#include "cluster/cluster_spec.h"
#include "shm/job_token.h"
#include "tools/passel/job_flags.h"
#include "tools/passel/task_flags.h"

namespace passel {

struct Task {
  TaskFlags flags;
  JobFlags job;
  ClusterSpec spec;
  TaskId id;
  std::string job_id;
  std::string token_file;  ///< "" if it is not ours to remove
  shm::JobToken token;
};

/// Fills in all but the flags. Errors: kInvalidArgument; those of JobToken::ReadOrCreate().
Status PrepareTask(Task* task);

/// Says why the task failed and returns its exit code. Under a supervisor the sentence goes to
/// `error_fd`: the supervisor knows which of several is the first.
int FailTask(const Status& status, int error_fd = -1);

/// Task 0 of its kind removes the token file that it made.
void RemoveToken(const Task& task);

}  // namespace passel
