// restart_policy.h - which ends of a task are final, and when a task is started again.
//
// Thread safety: constant data; a RestartPolicy belongs to one thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "base/subprocess.h"

namespace passel::job {

enum class AfterExit {
  kDone,     ///< it has finished
  kEndsJob,  ///< another life would end in the same way, and so would the other tasks
  kGone,     ///< it is not started again; the others go on if they can do without it
  kAgain,    ///< it is started again, if restarts are left
};

/// What follows from the exit codes `least` to `most` of a worker or a ps.
struct ExitRule {
  int least = 0, most = 0;
  AfterExit worker = AfterExit::kGone;
  AfterExit ps = AfterExit::kEndsJob;
  int job_code = 0;  ///< that of a job that it ends
  const char* meaning = "";
};

/// In order, from 0 to 255 without a gap. docs/operating.md shows the same table.
std::span<const ExitRule> ExitRules();

/// A signal counts as a shell tells it: 128 and its number.
const ExitRule& RuleFor(const ExitState& exit);

/// The restarts of one task: how many within a window of time, and with which pause.
///
/// The first restart comes at once, the second 0.1 s after the death, each further one after twice
/// the pause of the one before, up to 30 s. A life that made progress begins that series anew.
class RestartPolicy {
 public:
  enum class Counts {
    kAllLives,         ///< every restart within the window
    kFruitlessInARow,  ///< those since the last life that made progress
  };
  /// `window`: restarts that are older do not count; 0: all do.
  RestartPolicy(std::chrono::nanoseconds window, Counts counts)
      : window_ns_(window.count()), counts_(counts) {}

  /// A life ended at `now_ns` of MonotonicNs(). Returns when the next one is to begin, and counts
  /// it; nothing once `most` restarts are used up.
  std::optional<std::int64_t> Next(std::int64_t now_ns, bool made_progress, int most);

  /// Restarts that counted at the last call, and were made.
  int used() const { return static_cast<int>(restarts_ns_.size()); }

 private:
  const std::int64_t window_ns_;
  const Counts counts_;
  int fruitless_ = 0;  // lives in a row
  std::deque<std::int64_t> restarts_ns_;
};

}  // namespace passel::job
