// event_word.h - "something changed": spin a little, then sleep, always with a deadline.
//
// Lives in memory that processes share. A waiter waits for a condition on other atomics; whoever
// changes them calls Notify() afterwards. A waker killed between its change and its Notify() costs
// the waiters one slice of sleep; a waiter killed asleep leaves `sleepers` too high, which costs
// later notifiers a system call.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/deadline.h"
#include "base/futex.h"

namespace passel {

struct alignas(128) EventWord {
  std::atomic<std::uint32_t> sequence{0};
  std::atomic<std::uint32_t> sleepers{0};
};

/// Memory order: sequentially consistent. Either this sees the sleeper, or the sleeper, whose
/// registration then came later, sees the change that preceded this call.
inline void Notify(EventWord& event) {
  event.sequence.fetch_add(1, std::memory_order_seq_cst);
  if (event.sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(event.sequence);
}

/// The longest uninterrupted sleep.
inline constexpr std::chrono::milliseconds kWaitSlice{50};

/// Returns true once `condition()` holds, false at the deadline. Spins for `spin` first (about the
/// expected waiting time, or nearly nothing when there are more runnable tasks than cores), then
/// sleeps in slices; `before_sleep()` runs before each, to look after dead peers: what it changes
/// counts at once.
template <typename Condition, typename BeforeSleep>
bool WaitFor(EventWord& event, std::chrono::nanoseconds spin, Deadline deadline,
             Condition&& condition, BeforeSleep&& before_sleep) {
  if (condition()) return true;
  const Deadline spin_end = deadline.Sooner(spin);
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) return true;
      SpinPause();
    }
  } while (!spin_end.Expired());
  for (;;) {
    // Read before the look-around: a change after this point makes FutexWait return at once.
    const std::uint32_t seen = event.sequence.load(std::memory_order_seq_cst);
    before_sleep();
    event.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const bool done = condition();
    if (!done) FutexWait(event.sequence, seen, deadline.Sooner(kWaitSlice));
    event.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (done || condition()) return true;
    if (deadline.Expired()) return false;
  }
}

}  // namespace passel
