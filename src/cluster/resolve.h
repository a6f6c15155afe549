// resolve.h - what a task is to do, out of everything that can say so, and who said it.
//
// For each setting the first of these that has it decides:
//
//   1  TF_CONFIG                cluster and task: a job operator writes it for exactly this task
//   2  flags                    what was typed
//   3  JOB_NAME, TASK_INDEX, PS_HOSTS, WORKER_HOSTS: only if all four are there
//   4  PS_KEY, WORKER_KEY       host lists
//   5  the file of --config     usually shared by all tasks, so below what names one of them
//   6  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (ranks.h): only if nobody above names a cluster
//   7  defaults of the flags, which the caller may have changed (a preset: Flag::default_origin)
//
// TF_CONFIG's cluster counts as a whole: no host list of another place is mixed into it. Where an
// environment variable, which nobody sees, wins over another value that somebody wrote, a warning
// names both. docs/configuration.md is the user's description of this.
//
// A task of a cluster trains with others; where no cluster is named, one process trains alone
// ("single-machine").
//
// Thread safety: no state. Resolve() reads nothing but its input, which the caller supplies.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/cluster_spec.h"
#include "cluster/config_file.h"

namespace passel {

enum class Source { kTfConfig, kFlag, kTaskEnvironment, kHostKeys, kFile, kRanks, kDefault };

/// A flag of the command. job_name, task_index, ps_hosts, worker_hosts and num_gpus mean what
/// they mean in the reference programs; a list without them is as if they had no default.
struct Flag {
  std::string name;  ///< without dashes
  FlagType type = FlagType::kText;
  std::string value{};  ///< as typed if `given`, else the default; "" for none
  bool given = false;   ///< on the command line; `--ps_hosts=` is given, and empty
  bool in_file = true;  ///< the file may set it
  std::string default_origin = "default";  ///< where `value` comes from if nobody set it
};

struct ResolveInputs {
  std::span<const Flag> flags;
  /// The value of a variable, nothing if it is not set. May be empty: then none is set.
  std::function<std::optional<std::string>(const std::string& name)> environment;
  std::string config_path;                 ///< of --config, for messages
  std::optional<std::string> config_text;  ///< see ReadConfigFile()
  bool gpu_per_worker = false;             ///< fewer GPUs than workers are an error
  /// Workers may have an index beyond the lists (the caller checks how far).
  bool more_workers = false;
  /// This task is such a worker; where it names no index, the first one beyond the lists.
  bool joins = false;
  /// How many GPUs a task of ranks may choose from, asked only if no --num_gpus says it. May be
  /// empty: none.
  std::function<int()> visible_gpus;
};

struct Setting {
  std::string name;
  std::string value;
  Source source = Source::kDefault;
  std::string origin;  ///< "flag --ps_hosts", "TF_CONFIG cluster.ps", "environment PS_HOSTS",
                       ///< "file train.yaml:3" or "default"
};

struct ResolvedConfig {
  /// job_name, task_index, ps_hosts, worker_hosts, other jobs of the cluster, then the other flags
  /// in their order.
  std::vector<Setting> settings;
  std::vector<std::string> warnings;  ///< one line each; the caller logs them

  bool distributed = false;    ///< false: single-machine; then the next three are empty
  ClusterSpec cluster;         ///< its Hash() is compared when tasks meet, unless `partial`
  std::optional<TaskId> task;  ///< an evaluator, or one who joins, need not be in `cluster`
  std::string target;          ///< "host:port" of the task, or TF_CONFIG's session_master
  /// `cluster` is only what this task sees, as with dynamic workers.
  bool partial = false;
  bool is_chief = true;
  /// The cluster follows from ranks, where nobody starts a ps: this task, rank 0, has to.
  bool starts_ps = false;
  /// The GPU of a worker or chief; nothing: the CPU.
  std::optional<int> gpu;
  /// "/job:worker/task:1/gpu:0", or without the last field if there is no flag num_gpus. "" for ps,
  /// evaluator and single-machine.
  std::string worker_device;

  /// What the reference program prints: "Running distributed training" or "Running single-machine
  /// training".
  std::string_view Announcement() const;
  /// Null if there is no such setting.
  const Setting* Find(std::string_view name) const;
  /// OK unless `partial`. For callers that must know the whole cluster, to compare its hash or to
  /// count its workers. Errors: kFailedPrecondition.
  Status CheckComplete() const;
  /// A table for people: setting, value, where it came from. Each line ends with '\n'.
  std::string Describe() const;
};

/// Errors: kInvalidArgument; kResourceExhausted for a TF_CONFIG or file above its size limit.
Result<ResolvedConfig> Resolve(const ResolveInputs& inputs);

}  // namespace passel
