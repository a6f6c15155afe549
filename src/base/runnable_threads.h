// runnable_threads.h - whether who polls takes a processor from who has work.

#pragma once

#include <optional>
#include <string_view>

namespace passel {

/// Threads that run or wait for a processor, this one among them, in a line of /proc/loadavg:
/// "0.20 0.18 0.12 3/80 11206" says 3. None where it is no such line.
std::optional<int> RunnableIn(std::string_view line);

/// Whether more threads of this machine want a processor than it has, as the kernel said at most
/// 5 ms ago; false where that cannot be read. A few nanoseconds, and a few microseconds when it is
/// looked up. Threads: any.
bool ThreadsOutnumberCores();

}  // namespace passel
