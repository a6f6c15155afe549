// oom_watch.h - whether it was for lack of memory that the kernel killed a process.
//
// Nobody is told so: SIGKILL is all that is seen. But the kernel counts its victims, for each
// cgroup and for the machine.
//
// Thread safety: one thread at a time.

#pragma once

#include <cstdint>
#include <string>

namespace passel::job {

class OomWatch {
 public:
  /// Finds the count, that of our cgroup (v2 or v1) or, if that cannot be read, of the machine.
  /// `root` is put before /proc and /sys, for tests.
  explicit OomWatch(const std::string& root = "");

  /// After a child was killed by SIGKILL: words to follow "was killed by SIGKILL (9)". Empty unless
  /// the kernel has killed for lack of memory since the construction, more often than was told
  /// here. A question: it may have been another process, and the child killed by somebody else.
  std::string Explain();

 private:
  std::string file_;  // with a line "oom_kill N", if it can be read
  std::uint64_t told_ = 0;
};

}  // namespace passel::job
