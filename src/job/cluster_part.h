// cluster_part.h - of a job whose lists name several hosts, what `passel run` starts on this one:
// the ps and the workers that are here, as tasks by hand.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "cluster/cluster_spec.h"
#include "job/job_settings.h"
#include "job/task.h"
#include "job/task_settings.h"

namespace passel::job {

struct ClusterPart {
  Task task;                          ///< prepared, as the first of `tasks`
  std::vector<TaskId> tasks;          ///< of this host, ps first
  std::vector<std::string> warnings;  ///< one line each, to be logged
  bool in_environment = false;        ///< each reads there who it is, and is the only one

  int Count(bool ps) const;
  /// Whether ps/0 is of this host.
  bool HasLead() const;
  /// The index of one that trains among all that do.
  int TrainerOf(const TaskId& id) const;
  /// What `passel task` is to be told to become it.
  TaskSettings SettingsOf(const TaskId& id) const;
  /// The same as lines of PASSEL_SETTINGS, for a program.
  std::string LinesOf(const TaskId& id) const;
  /// For the other hosts: that this task ended so, and the job with it.
  std::string FailureOf(const TaskId& id, const std::string& how) const;
  /// Asks ps/0, wherever it is, to have all workers leave after their step. `failure`: FailureOf(),
  /// or "". Errors: those of the connection; kFailedPrecondition where no worker is here who could
  /// ask.
  Status StopJob(const std::string& failure, Deadline deadline) const;
  /// Whether somebody has stopped the job, as ps/0 says. Errors: kNotFound, kUnavailable: ps/0 is
  /// not there, or about to end; kDeadlineExceeded.
  struct Stop {
    bool stopped = false;
    std::string failure;  ///< of a task of any host, which is why; "": of none
  };
  Result<Stop> HowItStopped(Deadline deadline) const;
};

/// What the lists of `flags`, TF_CONFIG, or the other variables that `passel task` knows have for
/// this host: the one task that they name, or, where they name none, all whose addresses are of
/// this host. Nothing where no cluster is named. `counts_given`: somebody has said beside it how
/// many tasks there are. Errors: kInvalidArgument; those of PrepareTask().
Result<std::optional<ClusterPart>> FindClusterPart(const TaskSettings& flags,
                                                   const JobSettings& job, bool counts_given);

}  // namespace passel::job
