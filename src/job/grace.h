// grace.h - what of --grace is for what: seconds from the wish to end to the end.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace passel::job {

/// For killing tasks, the last evaluation and the files.
inline std::chrono::nanoseconds GraceForResults(double grace) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * std::min(5.0, grace / 5)));
}

/// Before that: for the last step, and the last checkpoint of a task by hand. Kubernetes waits 30 s
/// after SIGTERM.
inline std::chrono::nanoseconds GraceForTasks(double grace) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * grace)) - GraceForResults(grace);
}

}  // namespace passel::job
