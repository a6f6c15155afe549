// task_flags.h - the flags of `passel task` that describe the task rather than the job.

#pragma once

#include <optional>
#include <string>

namespace passel {

struct TaskFlags {
  std::string job_name;
  std::optional<int> task_index;
  std::string ps_hosts, worker_hosts;
  std::string job_id;
  std::string token_file;
  std::string save;
  std::int64_t log_step_count_steps = 100;
  // Set by a supervisor for its children; descriptors are inherited.
  bool supervised = false;
  int listen_fd = -1;
  int arena_fd = -1;
  int data_fd = -1;
  int error_fd = -1;  // takes the sentence that says why the task failed
};

}  // namespace passel
