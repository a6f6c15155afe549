#include "base/wait_check.h"

#include <cstdint>

#include "base/clock.h"

namespace passel {
namespace {

thread_local WaitCheck t_check;
thread_local std::int64_t t_next_ns = 0;  // not before

}  // namespace

void CheckWaits(WaitCheck check) { t_check = check; }

bool WaitsAreChecked() { return t_check.is_over != nullptr; }

bool WaitIsOver() {
  if (t_check.is_over == nullptr) return false;
  const std::int64_t now = MonotonicNs();
  if (now < t_next_ns) return false;
  if (t_check.is_over(t_check.argument)) return true;
  t_next_ns = now + std::chrono::nanoseconds(kWaitCheckPause).count();
  return false;
}

}  // namespace passel
