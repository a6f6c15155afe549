// steps_timer.h - whether it is time again, counted in steps or by the monotonic clock.
//
// Thread safety: none.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/status.h"

namespace passel {

/// One of the two; the other is 0.
struct Interval {
  std::int64_t steps = 0;
  std::chrono::nanoseconds time{0};
};

/// Due at the first question, then as soon as the step or MonotonicNs() is an interval further than
/// when it last fired; never twice at one step.
class StepsTimer {
 public:
  /// Errors: kInvalidArgument unless exactly one of the two is above 0, and none below.
  static Result<StepsTimer> Make(const Interval& every);

  bool IsDue(std::int64_t step) const;

  struct Elapsed {
    std::int64_t steps = 0;
    double seconds = 0;
  };
  /// It fires now, at `step`, due or not. Returns what passed since it last did; none the first
  /// time.
  std::optional<Elapsed> Fire(std::int64_t step);
  /// None if it never fired.
  std::optional<std::int64_t> last_step() const;

 private:
  explicit StepsTimer(const Interval& every) : every_(every) {}

  Interval every_;
  bool fired_ = false;
  std::int64_t step_ = 0, time_ns_ = 0;  // when it last fired
};

}  // namespace passel
