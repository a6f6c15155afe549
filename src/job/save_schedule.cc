#include "job/save_schedule.h"

#include <algorithm>

namespace passel::job {
namespace {

// After a save that failed. Those by steps may come close together, and are to do so again.
constexpr std::chrono::seconds kFirstPause{30}, kFirstPauseOfSteps{2};
constexpr std::chrono::seconds kMostPauseOfSteps{300};  // without an interval
// A disk that is full says so no more often, however short the interval is.
constexpr std::chrono::nanoseconds kLeastPause = std::chrono::seconds(2);

}  // namespace

bool SaveSchedule::Due(std::int64_t now_ns, std::int64_t step) const {
  if (now_ns < not_before_ns_) return false;
  if (at_once_) return true;
  if (steps_ > 0 && step >= begin_step_ + steps_) return true;
  return interval_.count() > 0 && now_ns - begin_ns_ >= interval_.count();
}

void SaveSchedule::Saved(std::int64_t begin_ns, std::int64_t begin_step) {
  Begin(begin_ns, begin_step);
  at_once_ = false;
  pause_ = {};
  not_before_ns_ = 0;
}

std::chrono::nanoseconds SaveSchedule::Failed(std::int64_t begin_ns, std::int64_t begin_step,
                                              std::int64_t now_ns, bool soon) {
  Begin(begin_ns, begin_step);
  at_once_ = soon;
  const bool by_time = interval_.count() > 0;
  const std::chrono::nanoseconds most =
      by_time ? std::max(interval_, kLeastPause) : kMostPauseOfSteps;
  const std::chrono::nanoseconds first = steps_ > 0 ? kFirstPauseOfSteps : kFirstPause;
  pause_ = std::min(pause_.count() == 0 ? first : 2 * pause_, most);
  not_before_ns_ = now_ns + pause_.count();
  return pause_;
}

}  // namespace passel::job
