#include "base/clock.h"

#include <ctime>

#include <atomic>

#include "base/check.h"

namespace passel {
namespace {

// Relaxed throughout: a fake clock publishes nothing but its own value.
std::atomic<std::int64_t> g_fake_ns{-1};

}  // namespace

std::int64_t MonotonicNs() {
  const std::int64_t fake = g_fake_ns.load(std::memory_order_relaxed);
  if (fake >= 0) [[unlikely]]
    return fake;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

ScopedFakeClock::ScopedFakeClock(std::int64_t now_ns) {
  PASSEL_CHECK(g_fake_ns.exchange(now_ns, std::memory_order_relaxed) < 0, "one fake clock only");
}

ScopedFakeClock::~ScopedFakeClock() { g_fake_ns.store(-1, std::memory_order_relaxed); }

void ScopedFakeClock::AdvanceNs(std::int64_t delta_ns) {
  g_fake_ns.fetch_add(delta_ns, std::memory_order_relaxed);
}

double WallSeconds() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace passel
