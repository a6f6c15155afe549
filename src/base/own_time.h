// own_time.h - for how long somebody has been silent, in time that the listener was awake.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/event_word.h"

namespace passel {

/// Time that passes while whoever measures it is running. Of what lies between two looks little
/// counts at most: so a job that was frozen as a whole (a paused container, a suspended machine)
/// finds nobody late when it goes on.
class OwnTime {
 public:
  void Restart(std::int64_t now) {
    looked_ns_ = now;
    passed_ns_ = 0;
  }
  /// Looks. True once more than `limit_ns` has passed.
  bool Exceeds(std::int64_t limit_ns, std::int64_t now) {
    passed_ns_ += std::min(now - looked_ns_, std::max(kMostPerLookNs, limit_ns / 8));
    looked_ns_ = now;
    return passed_ns_ > limit_ns;
  }

 private:
  static constexpr std::int64_t kMostPerLookNs = std::chrono::nanoseconds(4 * kWaitSlice).count();
  std::int64_t looked_ns_ = 0;
  std::int64_t passed_ns_ = 0;
};

}  // namespace passel
