// process_identity.h - who a process is, for as long as the machine runs.
//
// A pid alone is re-used. Pid and start time together are not, within one pid namespace.

#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/deadline.h"

namespace passel {

/// Trivially copyable: lives in the arena.
struct ProcessIdentity {
  std::int32_t pid = 0;  ///< in its own pid namespace; 0: nobody
  std::uint32_t reserved = 0;
  std::uint64_t start_time = 0;     ///< clock ticks after boot (field 22 of /proc/PID/stat)
  std::uint64_t pid_namespace = 0;  ///< inode number of /proc/PID/ns/pid

  bool operator==(const ProcessIdentity&) const = default;
};

/// The calling process.
ProcessIdentity SelfIdentity();
/// A process of our pid namespace, as it is now; pid 0 if there is none or /proc cannot be read.
ProcessIdentity IdentityOf(pid_t pid);

enum class Liveness {
  kAlive,
  kDead,     ///< gone, a zombie, or its pid belongs to another process by now
  kUnknown,  ///< of another pid namespace, or /proc cannot be read: not visible from here
};

/// Asks the kernel; about 10 us.
Liveness ProbeLiveness(const ProcessIdentity& who);

/// Ends a process that may be stopped, and waits until the kernel says that it is gone. False if it
/// is not at the deadline, or not ours to end: of another pid namespace or user, or we ourselves.
bool KillProcess(const ProcessIdentity& who, Deadline deadline);

}  // namespace passel
