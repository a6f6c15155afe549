#include "train/steps_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/clock.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The steps of 0 to `last` that it fires at.
std::vector<std::int64_t> Fired(StepsTimer timer, std::int64_t last) {
  std::vector<std::int64_t> fired;
  for (std::int64_t step = 0; step <= last; ++step) {
    if (!timer.IsDue(step)) continue;
    timer.Fire(step);
    fired.push_back(step);
  }
  return fired;
}

TEST(StepsTimer, FiresAtTheFirstQuestionAndThenEverySoManySteps) {
  EXPECT_THAT(Fired(StepsTimer::Make({.steps = 3}).value(), 10), ElementsAre(0, 3, 6, 9));
}

TEST(StepsTimer, CountsFromTheStepItFiredAtWhereStepsAreMissed) {
  StepsTimer timer = StepsTimer::Make({.steps = 10}).value();
  timer.Fire(4);
  EXPECT_FALSE(timer.IsDue(13));
  EXPECT_TRUE(timer.IsDue(27));
  timer.Fire(27);
  EXPECT_FALSE(timer.IsDue(36));
  EXPECT_TRUE(timer.IsDue(37));
}

TEST(StepsTimer, GoesByTheClockButNeverTwiceAtOneStep) {
  ScopedFakeClock clock;
  StepsTimer timer = StepsTimer::Make({.time = std::chrono::seconds(2)}).value();
  EXPECT_TRUE(timer.IsDue(5));
  timer.Fire(5);
  clock.AdvanceNs(1'999'999'999);
  EXPECT_FALSE(timer.IsDue(6));
  clock.AdvanceNs(1);
  EXPECT_TRUE(timer.IsDue(6));
  EXPECT_FALSE(timer.IsDue(5)) << "it was there already";
  clock.AdvanceNs(10'000'000'000);
  EXPECT_FALSE(timer.IsDue(5));
}

TEST(StepsTimer, TellsWhatPassedSinceItLastFired) {
  ScopedFakeClock clock;
  StepsTimer timer = StepsTimer::Make({.steps = 1}).value();
  EXPECT_FALSE(timer.last_step().has_value());
  EXPECT_FALSE(timer.Fire(7).has_value());
  clock.AdvanceNs(500'000'000);
  const std::optional<StepsTimer::Elapsed> passed = timer.Fire(12);
  ASSERT_TRUE(passed.has_value());
  EXPECT_EQ(passed->steps, 5);
  EXPECT_DOUBLE_EQ(passed->seconds, 0.5);
  EXPECT_EQ(timer.last_step(), 12);
}

TEST(StepsTimer, TakesExactlyOneOfSecondsAndSteps) {
  EXPECT_EQ(StepsTimer::Make({}).status().message(),
            "Either every_secs or every_steps should be provided.");
  EXPECT_EQ(StepsTimer::Make({.steps = 1, .time = std::chrono::seconds(1)}).status().message(),
            "Can not provide both every_secs and every_steps.");
  for (const Interval& negative :
       {Interval{.steps = -4}, Interval{.time = std::chrono::seconds(-4)},
        Interval{.steps = 1, .time = std::chrono::seconds(-4)}}) {
    const Status status = StepsTimer::Make(negative).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("-4"));
  }
}

}  // namespace
}  // namespace passel
