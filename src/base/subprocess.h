// subprocess.h - children that cannot outlive their parent.
//
// fork + exec from the main thread (PR_SET_PDEATHSIG fires when the parent *thread* ends), each
// child in a process group of its own, so that a Ctrl-C on the terminal reaches the parent alone.
// A child is watched through a pidfd: its end is an event, not a poll.
//
// Children stop and go on with their parent: from the first Spawn() on, SIGTSTP (Ctrl-Z), SIGTTOU
// and SIGTTIN, where they are not ignored, stop the children's process groups before the parent,
// and SIGCONT lets all of them go on.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

struct SpawnOptions {
  std::string executable = "/proc/self/exe";
  std::vector<std::string> arguments;      ///< without argv[0]
  std::string name = "passel";             ///< argv[0]
  std::vector<std::string> environment;    ///< "NAME=value", added to ours
  std::vector<std::string> not_handed_on;  ///< names of variables of ours that it does not get
  std::vector<int> inherited_fds;          ///< under the same numbers
  std::vector<int> cpus;                   ///< the child may run on these; empty: as we may
  int out = -1, err = -1;                  ///< its descriptors 1 and 2; -1: ours
};

/// How a child ended.
struct ExitState {
  bool signalled = false;
  int code = 0;  ///< exit code, or the signal's number
  /// "exited with 2" or "was killed by SIGKILL (9)".
  std::string ToString() const;
};

class Subprocess {
 public:
  /// REQUIRES: the calling thread lives as long as the child is to live.
  /// Errors: kResourceExhausted, kInternal.
  static Result<Subprocess> Spawn(const SpawnOptions& options);

  Subprocess(Subprocess&&) noexcept = default;
  Subprocess& operator=(Subprocess&&) noexcept = default;
  /// Kills the child's process group and reaps the child if that has not happened.
  ~Subprocess();

  pid_t pid() const { return pid_; }
  /// Readable once the child has ended.
  int pidfd() const { return pidfd_.get(); }
  /// Its end, if it has ended; reaps it.
  std::optional<ExitState> TryReap();
  /// Errors: kDeadlineExceeded.
  Result<ExitState> Reap(Deadline deadline);
  /// To its whole process group.
  void Signal(int signal);
  /// Leaves it to itself: it is neither killed nor waited for.
  void Abandon();

 private:
  Subprocess(pid_t pid, FileDescriptor pidfd);
  pid_t pid_ = 0;
  FileDescriptor pidfd_;  // invalid once moved from
  std::optional<ExitState> ended_;
};

/// "SIGKILL (9)".
std::string SignalName(int signal);

/// The processors that this process may run on: its affinity mask. At least one.
std::vector<int> AffinityCpus();

/// The processors this process may use, from its affinity mask; at most as many as its cgroups'
/// CPU quotas (v1 and v2) pay for, rounded down, but at least one. `root` as in
/// ReadMemoryBudget().
std::vector<int> UsableCpus(const std::string& root = "");

}  // namespace passel
