// patience.h - the one way to wait for a task that is not there yet, or not at the moment:
//
//   Patience patience(deadline, [] { LogInfo("still waiting for ps/0"); });
//   do {
//     status = Ask();
//     if (!IsMissing(status.code())) return status;
//   } while (patience.Again());
//   return DeadlineExceeded("ps/0 did not start in time");
//
// Thread safety: one thread at a time.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/status.h"
#include "base/wait_check.h"

namespace passel {

/// Nobody listens, it ended while we spoke to it, or it does not answer in time: another attempt
/// may find it.
inline bool IsMissing(Code code) {
  return code == Code::kNotFound || code == Code::kUnavailable || code == Code::kDeadlineExceeded;
}

class Patience {
 public:
  static constexpr std::chrono::nanoseconds kTellEvery = std::chrono::seconds(10);

  /// `tell`, which may be empty, is called every ten seconds, and says who is waited for.
  explicit Patience(Deadline deadline, std::function<void()> tell = {})
      : deadline_(deadline), tell_(std::move(tell)) {}

  /// After an attempt that failed: false once the deadline has passed; else true after `pause`.
  bool Again(std::chrono::nanoseconds pause = std::chrono::milliseconds(20)) {
    if (deadline_.Expired() || WaitIsOver()) return false;
    if (MonotonicNs() >= next_tell_ns_) {
      next_tell_ns_ += kTellEvery.count();
      if (tell_) tell_();
    }
    std::this_thread::sleep_for(std::min(pause, deadline_.Remaining()));
    return true;
  }

  const Deadline& deadline() const { return deadline_; }

 private:
  const Deadline deadline_;
  const std::function<void()> tell_;
  std::int64_t next_tell_ns_ = MonotonicNs() + kTellEvery.count();
};

}  // namespace passel
