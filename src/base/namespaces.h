// namespaces.h - what a uid and a clock of this process are worth to others, seen from its user
// and time namespaces.

#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace passel {

/// Whether `uid`, ours, stands for one user. False in a user namespace that gives some users no
/// number, if `uid` is the number that the kernel shows for all of them (overflowuid, 65534): a
/// peer with the same number may be anybody. `root` is put before /proc, for tests.
bool UidMeansOneUser(uid_t uid, const std::string& root = "");

/// What this process's clocks are ahead of the machine's: "monotonic 0 0, boottime 1000 0", in
/// seconds and nanoseconds. Processes with the same text can compare heartbeats and start times.
/// Names the time namespace instead where the offsets are not to be known: a process is in another
/// one than its children until it executes a program (Linux before 6.3, unshare -T without --fork).
/// Empty if the kernel has no time namespaces. `root` as above.
std::string ClockOffsets(const std::string& root = "");

/// Whether processes that are started from here have our clocks. Errors: kFailedPrecondition.
Status CheckClocksOfChildren(const std::string& root = "");

}  // namespace passel
