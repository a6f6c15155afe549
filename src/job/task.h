// task.h - one task of a cluster: who it is, and what its kinds share.
//
// To the store, whoever trains is a worker with an index: worker/i has index i. A chief (or master)
// of its own trains like the others and has the index after the last of them.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "cluster/cluster_spec.h"
#include "cluster/job_token.h"
#include "cluster/resolve.h"
#include "cluster/token_file.h"
#include "cluster/worker_names.h"
#include "fabric/bulk_network.h"
#include "job/job_config.h"
#include "job/job_settings.h"
#include "job/task_settings.h"

namespace passel::job {

struct Task {
  TaskSettings flags;
  JobSettings job;
  ClusterSpec spec;
  TaskId id;
  bool is_chief = false;
  std::string worker_device;  ///< of ResolvedConfig
  std::optional<int> gpu;     ///< of ResolvedConfig: the one of --num_gpus that is its own
  std::string job_id;
  TokenFile token_file;  ///< held while the task lives; empty if the user named the file
  JobToken token;
  FileDescriptor place;             ///< of --join: nobody else who joins takes it meanwhile
  std::shared_ptr<void> far_place;  ///< likewise, where ps/0 is elsewhere
  bool several_hosts = false;       ///< the lists name others than this one
  /// Of --fabric_provider; null: parameters travel by the control connections' own kind.
  std::shared_ptr<fabric::BulkNetwork> network;

  /// Who train at first: the workers, and a chief of its own.
  int NumTrainers() const;
  /// The most that ever do.
  int MostTrainers() const;
  /// This task's index among them. REQUIRES: it trains.
  int Trainer() const;
  /// What they are called, and who of them is the chief.
  WorkerNames Names() const;
  bool HasSeparateChief() const;
};

/// Whether it has an address that is not of this host.
bool NamesOtherHosts(const ClusterSpec& spec);

/// Fills in all but the flags, for the cluster that `config` names. Errors: kInvalidArgument;
/// kFailedPrecondition for a cluster that is seen in part; those of JobToken::ReadOrCreate().
Status PrepareTask(const ResolvedConfig& config, Task* task);

/// Logs where the tasks of the cluster are and that this one has its endpoint, if the style of
/// `config` has such lines. A supervised job has no addresses: nothing is logged.
void LogServer(const Task& task, const JobConfig& config);

/// Logs the session of a task that trains, likewise.
void LogSession(const Task& task, const JobConfig& config);

/// What logs whom a task waits for, in the words of the style of `config`.
std::function<void(const std::string& task)> TellsOfWaiting(const JobConfig& config);

/// Says why the task failed and returns its exit code. Under a supervisor the sentence goes to
/// `error_fd`: the supervisor knows which of several is the first.
int FailTask(const Status& status, int error_fd = -1);

/// Task 0 of its kind removes the token file that it made.
void RemoveToken(Task& task);

}  // namespace passel::job
