// save_schedule.h - when the next checkpoint of a job is due: by time, by steps, or since the last
// try failed.

#pragma once

#include <chrono>
#include <cstdint>

namespace passel::job {

/// Times are MonotonicNs().
class SaveSchedule {
 public:
  /// 0: not by time, not by steps.
  SaveSchedule(std::chrono::nanoseconds interval, std::int64_t steps)
      : interval_(interval), steps_(steps) {}

  /// The next one is due whatever the time.
  void SetAtOnce() { at_once_ = true; }

  /// False: but for the first and the last there are none.
  bool Repeats() const { return interval_.count() > 0 || steps_ > 0; }
  /// Whether one is to be tried. `step`: of the job, which has gone on since the newest.
  bool Due(std::int64_t now_ns, std::int64_t step) const;

  /// A try that began so went well, or none was made yet: intervals and steps count from here on.
  /// What is made while a save is under way belongs to the next one.
  void Saved(std::int64_t begin_ns, std::int64_t begin_step);
  /// One that began so failed at `now_ns`. The next is tried after the pause that this returns,
  /// which doubles with each failure up to the interval. `soon`: even if none is due by then.
  std::chrono::nanoseconds Failed(std::int64_t begin_ns, std::int64_t begin_step,
                                  std::int64_t now_ns, bool soon);

 private:
  void Begin(std::int64_t begin_ns, std::int64_t begin_step) {
    begin_ns_ = begin_ns;
    begin_step_ = begin_step;
  }

  const std::chrono::nanoseconds interval_;
  const std::int64_t steps_;
  std::int64_t begin_ns_ = 0, begin_step_ = 0;  // of the last try
  bool at_once_ = false;
  std::chrono::nanoseconds pause_{0};  // after the last failure; 0: that was none
  std::int64_t not_before_ns_ = 0;     // the end of it
};

}  // namespace passel::job
