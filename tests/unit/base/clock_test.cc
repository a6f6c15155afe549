#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/deadline.h"

namespace passel {
namespace {

using namespace std::chrono_literals;

TEST(ClockTest, TheMonotonicClockIsTheOneOfTheKernelAndNeverGoesBack) {
  timespec before;
  clock_gettime(CLOCK_MONOTONIC, &before);
  std::int64_t last = MonotonicNs();
  EXPECT_GE(last, before.tv_sec * 1'000'000'000 + before.tv_nsec);
  for (int i = 0; i < 10'000; ++i) {
    const std::int64_t now = MonotonicNs();
    ASSERT_GE(now, last);
    last = now;
  }
  timespec after;
  clock_gettime(CLOCK_MONOTONIC, &after);
  EXPECT_LE(last, after.tv_sec * 1'000'000'000 + after.tv_nsec);
}

TEST(ClockTest, WallSecondsCountFrom1970) {
  const std::time_t before = std::time(nullptr);
  const double now = WallSeconds();
  EXPECT_GE(now, static_cast<double>(before) - 1);  // time() may use a coarser clock
  EXPECT_LE(now, static_cast<double>(std::time(nullptr)) + 2);
}

TEST(ClockTest, AFakeClockStandsStillUntilItIsMovedAndThenGivesWay) {
  {
    ScopedFakeClock clock(500);
    EXPECT_EQ(MonotonicNs(), 500);
    EXPECT_EQ(MonotonicNs(), 500);
    clock.AdvanceNs(7);
    EXPECT_EQ(MonotonicNs(), 507);
  }
  EXPECT_GT(MonotonicNs(), 1'000'000);  // the real one again
  ScopedFakeClock zero(0);
  EXPECT_EQ(MonotonicNs(), 0);
}

TEST(ClockDeathTest, TwoFakeClocksAreAProgrammingError) {
  const auto two = [] {
    ScopedFakeClock first;
    ScopedFakeClock second;
  };
  EXPECT_DEATH(two(), "one fake clock only");
}

TEST(DeadlineTest, ExpiresExactlyAtItsTime) {
  ScopedFakeClock clock(1'000);
  const Deadline deadline = Deadline::After(10ns);
  EXPECT_EQ(deadline.at_ns(), 1'010);
  EXPECT_FALSE(deadline.Expired());
  EXPECT_EQ(deadline.Remaining(), 10ns);
  clock.AdvanceNs(9);
  EXPECT_FALSE(deadline.Expired());
  EXPECT_EQ(deadline.Remaining(), 1ns);
  clock.AdvanceNs(1);
  EXPECT_TRUE(deadline.Expired());
  EXPECT_EQ(deadline.Remaining(), 0ns);
  clock.AdvanceNs(1'000'000);
  EXPECT_TRUE(deadline.Expired());
  EXPECT_EQ(deadline.Remaining(), 0ns);
}

TEST(DeadlineTest, AZeroOrNegativeTimeoutHasPassedAlready) {
  ScopedFakeClock clock;
  EXPECT_TRUE(Deadline::After(0ns).Expired());
  EXPECT_TRUE(Deadline::After(-5s).Expired());
  EXPECT_EQ(Deadline::After(-5s).Remaining(), 0ns);
  EXPECT_EQ(Deadline::After(-5s).PollTimeoutMs(), 0);
}

TEST(DeadlineTest, PollTimeoutsAreRoundedUpAndCapped) {
  ScopedFakeClock clock;
  EXPECT_EQ(Deadline::After(0ms).PollTimeoutMs(), 0);
  EXPECT_EQ(Deadline::After(1ns).PollTimeoutMs(), 1);
  EXPECT_EQ(Deadline::After(1ms).PollTimeoutMs(), 1);
  EXPECT_EQ(Deadline::After(1ms + 1ns).PollTimeoutMs(), 2);
  EXPECT_EQ(Deadline::After(50ms).PollTimeoutMs(), 50);
  EXPECT_EQ(Deadline::After(50ms).PollTimeoutMs(20), 20);
  EXPECT_EQ(Deadline::After(std::chrono::hours(24 * 365)).PollTimeoutMs(), 1'000'000);
}

TEST(DeadlineTest, SoonerTakesTheEarlierOfTheTwo) {
  ScopedFakeClock clock(100);
  const Deadline deadline = Deadline::At(200);
  EXPECT_EQ(deadline.Sooner(50ns).at_ns(), 150);
  EXPECT_EQ(deadline.Sooner(100ns).at_ns(), 200);
  EXPECT_EQ(deadline.Sooner(500ns).at_ns(), 200);
  clock.AdvanceNs(80);
  EXPECT_EQ(deadline.Sooner(50ns).at_ns(), 200);
}

}  // namespace
}  // namespace passel
