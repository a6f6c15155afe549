// EventWord: no wake is lost, no deadline is missed.

#include "base/event_word.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <atomic>
#include <thread>

namespace passel {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Two threads hand a number to each other. A lost wake costs a slice of 50 ms, so that the slowest
// hand-over tells: 100,000 of them with one lost in a thousand would take 5 s more.
void HandOver(std::chrono::nanoseconds spin, int count) {
  EventWord event;
  std::atomic<int> turn{0};
  const auto player = [&](int me) {
    for (int i = me; i < count; i += 2) {
      ASSERT_TRUE(WaitFor(
          event, spin, Deadline::After(std::chrono::seconds(60)),
          [&] { return turn.load(std::memory_order_acquire) == i; }, [] {}));
      turn.store(i + 1, std::memory_order_seq_cst);
      Notify(event);
    }
  };
  const std::int64_t begin = MonotonicNs();
  std::thread other(player, 1);
  player(0);
  other.join();
  EXPECT_EQ(turn.load(), count);
  // 100,000 slices would be 5,000 s; a wake takes up to 0.1 ms on a busy virtual machine.
  EXPECT_LT(MonotonicNs() - begin, 45'000'000'000);
}

TEST(EventWord, LosesNoWakeInAHundredThousandHandOversThatSleep) {
  HandOver(std::chrono::nanoseconds(0), 100'000);
}

TEST(EventWord, LosesNoWakeInAHundredThousandHandOversThatSpinFirst) {
  HandOver(microseconds(5), 100'000);
}

TEST(EventWord, WakesEveryoneWhoSleeps) {
  EventWord event;
  std::atomic<bool> open{false};
  std::atomic<int> asleep{0};
  std::vector<std::thread> threads;
  std::atomic<std::int64_t> latest{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      asleep.fetch_add(1);
      EXPECT_TRUE(WaitFor(
          event, microseconds(1), Deadline::After(std::chrono::seconds(60)),
          [&] { return open.load(); }, [] {}));
      std::int64_t now = MonotonicNs();
      std::int64_t seen = latest.load();
      while (seen < now && !latest.compare_exchange_weak(seen, now)) {
      }
    });
  }
  while (asleep.load() < 8) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GT(event.sleepers.load(), 0u);
  open.store(true);
  Notify(event);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(event.sleepers.load(), 0u);
}

TEST(EventWord, EndsAtItsDeadlineAndNotBefore) {
  EventWord event;
  for (const auto& [spin_ms, wait_ms] : {std::pair{0, 0}, {0, 30}, {200, 30}, {0, 120}}) {
    const std::int64_t begin = MonotonicNs();
    EXPECT_FALSE(WaitFor(
        event, milliseconds(spin_ms), Deadline::After(milliseconds(wait_ms)), [] { return false; },
        [] {}));
    const std::int64_t took = MonotonicNs() - begin;
    EXPECT_GE(took, wait_ms * 1'000'000);
    EXPECT_LT(took, 5'000'000'000);
  }
}

TEST(EventWord, ConditionThatHoldsIsSeenAfterTheDeadlineToo) {
  EventWord event;
  EXPECT_TRUE(WaitFor(
      event, milliseconds(0), Deadline::After(milliseconds(-1)), [] { return true; }, [] {}));
  bool done = false;
  EXPECT_TRUE(WaitFor(
      event, milliseconds(0), Deadline::After(milliseconds(-1)), [&] { return done; },
      [&] { done = true; }))
      << "what the look-around changes counts at once";
}

TEST(EventWord, AWakerThatDiedCostsOneSlice) {
  EventWord event;
  std::atomic<bool> changed{false};
  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(20));
    changed.store(true);  // and dies before it calls Notify()
  });
  const std::int64_t begin = MonotonicNs();
  EXPECT_TRUE(WaitFor(
      event, microseconds(1), Deadline::After(std::chrono::seconds(60)),
      [&] { return changed.load(); }, [] {}));
  EXPECT_LT(MonotonicNs() - begin, 2'000'000'000);
  waker.join();
}

TEST(EventWord, SleeperUsesNoProcessorTime) {
  EventWord event;
  rusage before;
  rusage after;
  ::getrusage(RUSAGE_THREAD, &before);
  EXPECT_FALSE(WaitFor(
      event, microseconds(1), Deadline::After(milliseconds(300)), [] { return false; }, [] {}));
  ::getrusage(RUSAGE_THREAD, &after);
  const auto us = [](const timeval& t) { return t.tv_sec * 1'000'000 + t.tv_usec; };
  EXPECT_LT(us(after.ru_utime) + us(after.ru_stime) - us(before.ru_utime) - us(before.ru_stime),
            100'000);
}

}  // namespace
}  // namespace passel
