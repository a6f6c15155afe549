// deadline.h - the point in time at which a wait gives up. Every wait takes one.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace passel {

class Deadline {
 public:
  /// `timeout` from now; a negative one has passed already.
  static Deadline After(std::chrono::nanoseconds timeout) { return Deadline(Later(timeout)); }
  /// At a time of MonotonicNs().
  static Deadline At(std::int64_t monotonic_ns) { return Deadline(monotonic_ns); }

  bool Expired() const { return MonotonicNs() >= at_ns_; }
  /// Zero once expired.
  std::chrono::nanoseconds Remaining() const {
    return std::chrono::nanoseconds(std::max<std::int64_t>(0, at_ns_ - MonotonicNs()));
  }
  /// For poll(2): milliseconds, rounded up, at most `cap_ms`.
  int PollTimeoutMs(int cap_ms = 1'000'000) const {
    const std::int64_t ms = (Remaining().count() + 999'999) / 1'000'000;
    return static_cast<int>(std::min<std::int64_t>(ms, cap_ms));
  }
  /// The earlier of the two.
  Deadline Sooner(std::chrono::nanoseconds timeout) const {
    return Deadline(std::min(at_ns_, Later(timeout)));
  }
  std::int64_t at_ns() const { return at_ns_; }

 private:
  // At most 100 years from now, so that no sum overflows.
  static std::int64_t Later(std::chrono::nanoseconds timeout) {
    constexpr std::int64_t kMost = std::int64_t{3'153'600'000} * 1'000'000'000;
    return MonotonicNs() + std::clamp(timeout.count(), -kMost, kMost);
  }
  explicit Deadline(std::int64_t at_ns) : at_ns_(at_ns) {}
  std::int64_t at_ns_;  // MonotonicNs()
};

}  // namespace passel
