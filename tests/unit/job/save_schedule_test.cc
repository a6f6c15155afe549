// When a checkpoint is due, by a clock that the test sets.

#include "job/save_schedule.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace passel::job {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// Seconds between tries that begin as soon as one is due and fail after `takes` seconds, each with
// one step more than the one before.
std::vector<std::int64_t> SecondsBetween(SaveSchedule schedule, int tries, bool soon,
                                         std::int64_t takes = 0) {
  std::vector<std::int64_t> between;
  std::int64_t now = 0, last = 0;
  while (static_cast<int>(between.size()) < tries) {
    if (!schedule.Due(now, /*step=*/10)) {
      now += kSecond;
      continue;
    }
    between.push_back((now - last) / kSecond);
    last = now;
    now += takes * kSecond;
    (void)schedule.Failed(last, 10, now, soon);
  }
  return between;
}

TEST(SaveScheduleTest, SavesComeByTimeAndBySteps) {
  SaveSchedule schedule(std::chrono::seconds(600), 100);
  schedule.Saved(0, 0);
  EXPECT_FALSE(schedule.Due(599 * kSecond, 99));
  EXPECT_TRUE(schedule.Due(600 * kSecond, 1));
  EXPECT_TRUE(schedule.Due(1, 100));
  schedule.Saved(1, 117);  // from where that one began
  EXPECT_FALSE(schedule.Due(2, 216));
  EXPECT_TRUE(schedule.Due(2, 217));
  SaveSchedule never({}, 0);
  never.Saved(0, 0);
  EXPECT_FALSE(never.Due(INT64_MAX, INT64_MAX));
  never.SetAtOnce();
  EXPECT_TRUE(never.Due(1, 1));
}

TEST(SaveScheduleTest, OneThatFailsIsTriedAgainSoonAndThenLessOften) {
  const std::vector<std::int64_t> slower = {600, 30, 60, 120, 240, 480, 600, 600};
  EXPECT_EQ(SecondsBetween({std::chrono::seconds(600), 0}, 8, true), slower);
  // From its end on.
  const std::vector<std::int64_t> slow = {600, 40, 70, 130};
  EXPECT_EQ(SecondsBetween({std::chrono::seconds(600), 0}, 4, true, 10), slow);
  const std::vector<std::int64_t> often = {5, 5, 5};
  EXPECT_EQ(SecondsBetween({std::chrono::seconds(5), 0}, 3, true), often);
  // However short the interval is.
  const std::vector<std::int64_t> least = {1, 2, 2, 2};
  EXPECT_EQ(SecondsBetween({std::chrono::milliseconds(50), 0}, 4, true), least);
  // By steps.
  const std::vector<std::int64_t> steps = {0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300};
  EXPECT_EQ(SecondsBetween({{}, 10}, 11, true), steps);
}

TEST(SaveScheduleTest, WhereOthersWereWaitedForTheNextOneIsTriedWhenItIsDue) {
  const std::vector<std::int64_t> due = {600, 600, 600};
  EXPECT_EQ(SecondsBetween({std::chrono::seconds(600), 0}, 3, false), due);
}

TEST(SaveScheduleTest, ASaveThatSucceedsEndsTheSeries) {
  SaveSchedule schedule(std::chrono::seconds(600), 0);
  schedule.Saved(0, 0);
  EXPECT_EQ(schedule.Failed(0, 1, 0, true), std::chrono::seconds(30));
  EXPECT_EQ(schedule.Failed(0, 1, 0, true), std::chrono::seconds(60));
  EXPECT_FALSE(schedule.Due(59 * kSecond, 2));
  EXPECT_TRUE(schedule.Due(60 * kSecond, 2));
  schedule.Saved(60 * kSecond, 2);
  EXPECT_FALSE(schedule.Due(659 * kSecond, 3));
  EXPECT_EQ(schedule.Failed(0, 1, 0, true), std::chrono::seconds(30));
}

}  // namespace
}  // namespace passel::job
