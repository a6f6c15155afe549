#include "cuda/sign.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/futex.h"

namespace passel::cuda {
namespace {

using std::chrono::microseconds;

// A step of a small model takes 20 us or so; beyond that the core may be somebody else's, and far
// beyond it a nap costs nothing.
constexpr microseconds kSpin{50};
constexpr microseconds kYield{1000};
constexpr microseconds kNap{50};

}  // namespace

Status AwaitSign(Device& device, const std::uint64_t* sign, std::uint64_t number,
                 std::string_view what, unsigned looks_per_health, Deadline deadline) {
  const std::int64_t begin = MonotonicNs();
  for (;;) {
    for (unsigned i = 0; i < looks_per_health; ++i) {
      // Acquire: pairs with the release of the kernel that gives the sign.
      if (__atomic_load_n(sign, __ATOMIC_ACQUIRE) == number) return {};
      SpinPause();
    }
    PASSEL_RETURN_IF_ERROR(device.Health());
    const std::chrono::nanoseconds waited(MonotonicNs() - begin);
    if (deadline.Expired()) {
      if (__atomic_load_n(sign, __ATOMIC_ACQUIRE) == number) return {};
      return DeadlineExceeded(
          fmt::format("{} is not done on {} after {} ms: the GPU is busy with somebody else's "
                      "work, or hangs",
                      what, device.info().name, waited.count() / 1'000'000));
    }
    if (waited > kYield) {
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(kNap, deadline.Remaining()));
    } else if (waited > kSpin) {
      sched_yield();
    }
  }
}

}  // namespace passel::cuda
