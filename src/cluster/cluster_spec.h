// cluster_spec.h - who is in the cluster: the tasks of each job and their addresses.
//
//   job "ps"      0 = localhost:2222
//   job "worker"  0 = localhost:2223   1 = localhost:2224
//
// Every task of a cluster is started with the same spec; Hash() lets them compare. Where a
// reference program has an error text for a wrong flag, the message here begins with exactly that
// text.
//
// Thread safety: const calls may run concurrently.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace passel {

/// Where a task listens. `host` is in canonical form: a name in lower case, an IPv4 address, or an
/// IPv6 address without brackets, in its shortest form.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  /// "name:2222" or "[::1]:2222".
  std::string ToString() const;
  friend bool operator==(const HostPort&, const HostPort&) = default;
  friend auto operator<=>(const HostPort&, const HostPort&) = default;
};

/// Parses "host:port". The host is a name of letters, digits, '.', '-' and '_' (at most 253 bytes),
/// an IPv4 address of four numbers, or an IPv6 address in brackets; the port is 1 to 65535.
/// Names are not looked up. Errors: kInvalidArgument.
Result<HostPort> ParseHostPort(std::string_view text);

/// Parses "host:port,host:port,...". Errors: kInvalidArgument, also for an empty element.
Result<std::vector<HostPort>> ParseHostList(std::string_view text);

/// One task of the cluster: job = role, index = which of its tasks.
struct TaskId {
  std::string job;
  int index = 0;

  /// "worker/1"
  std::string ToString() const { return job + "/" + std::to_string(index); }
  friend bool operator==(const TaskId&, const TaskId&) = default;
  friend auto operator<=>(const TaskId&, const TaskId&) = default;
};

/// Job name -> task index -> address. Indices may have gaps.
class ClusterSpec {
 public:
  using Tasks = std::map<int, HostPort>;
  static constexpr int kMaxTaskIndex = 99'999;

  /// A cluster of ps and worker tasks from the values of --ps_hosts and --worker_hosts.
  /// Errors: kInvalidArgument: an empty list ("Must specify an explicit `ps_hosts`"), an address
  /// that cannot be parsed, one that occurs twice.
  static Result<ClusterSpec> FromHostLists(std::string_view ps_hosts,
                                           std::string_view worker_hosts);

  /// Job names are [A-Za-z][A-Za-z0-9_]{0,31}. Errors: kInvalidArgument: a wrong name or index, a
  /// second address for one task, an address that another task has; the spec is then unchanged.
  Status Add(std::string_view job, int index, HostPort address);

  const std::map<std::string, Tasks, std::less<>>& jobs() const { return jobs_; }
  /// 0 for a job that is not there.
  int num_tasks(std::string_view job) const;
  /// Errors: kInvalidArgument, naming the job or the index that is not there.
  Result<HostPort> Address(const TaskId& task) const;

  /// Whether a training job can run: at least one ps and one worker, at most one chief (also called
  /// master) and one evaluator, no other job, indices without gaps. Errors: kInvalidArgument.
  Status Validate() const;
  /// The part of Validate() that also holds for what one task sees of a larger cluster: at most one
  /// chief or master and at most one evaluator, with index 0. Errors: kInvalidArgument.
  Status CheckSingleTasks() const;
  /// No job's indices have a gap.
  bool dense() const;

  /// Whether `task` initialises, saves and summarises: the chief (or master) if there is one, else
  /// worker 0.
  bool IsChief(const TaskId& task) const;

  /// "ps{0=localhost:2222}worker{0=localhost:2223,1=localhost:2224}": jobs by name, tasks by index.
  /// Two specs are the same cluster exactly if their texts are equal.
  std::string CanonicalText() const;

  /// FNV-1a, 64 bits, of "passel-cluster-1:" followed by CanonicalText(). The same in every build;
  /// exchanging the addresses of two tasks changes it.
  std::uint64_t Hash() const;

  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;

 private:
  std::map<std::string, Tasks, std::less<>> jobs_;
  std::map<HostPort, TaskId> owners_;  // the same tasks by address
};

/// The task that --job_name and --task_index name. Errors: kInvalidArgument: "Must specify an
/// explicit `job_name`" (empty) or "... `task_index`" (absent), or it is not in `spec`.
Result<TaskId> ResolveTask(const ClusterSpec& spec, std::string_view job_name,
                           std::optional<int> task_index);

/// A job id names the whole run, for example in socket names: [A-Za-z0-9][A-Za-z0-9._-]{0,47}.
/// Errors: kInvalidArgument.
Status ValidateJobId(std::string_view id);

/// "job-" and 16 hexadecimal digits made from the address of ps/0: what tasks started by hand,
/// without --job_id, agree on. Tasks that differ in other hosts still meet, and can be told so; a
/// second job with the same ps/0 is refused, as if its port were taken.
std::string JobIdFromSpec(const ClusterSpec& spec);

/// Whether `host` (of a HostPort) is this machine, without asking a name server: "localhost",
/// 127.0.0.0/8, ::1, the address of one of its network interfaces, or exactly the machine's own
/// host name. False for a machine's other names.
bool IsLocalHost(std::string_view host);

}  // namespace passel
