// clock.h - the monotonic clock of every timeout, and its fake.

#pragma once

#include <chrono>
#include <cstdint>

namespace passel {

/// Nanoseconds on CLOCK_MONOTONIC: the same in every process of the host, untouched by changes of
/// the wall clock.
std::int64_t MonotonicNs();

/// For texts.
inline double ToSeconds(std::chrono::nanoseconds time) {
  return 1e-9 * static_cast<double>(time.count());
}

/// While it lives, MonotonicNs() in this process returns what the test says. For timeout logic
/// only: a thread that sleeps in the kernel does not see it. One at a time.
class ScopedFakeClock {
 public:
  explicit ScopedFakeClock(std::int64_t now_ns = 1'000'000'000);
  ~ScopedFakeClock();
  ScopedFakeClock(const ScopedFakeClock&) = delete;
  ScopedFakeClock& operator=(const ScopedFakeClock&) = delete;
  void AdvanceNs(std::int64_t delta_ns);
};

/// Wall-clock seconds since 1970, for what people read; never for timeouts.
double WallSeconds();

}  // namespace passel
