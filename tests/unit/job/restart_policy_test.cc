// Which ends of a task are final, and when the next life of a task begins.

#include "job/restart_policy.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "job/exit_code.h"

namespace passel::job::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kOneMs = 1'000'000;
constexpr std::int64_t kOneSecond = 1000 * kOneMs;

TEST(ExitRulesTest, CoverEveryCodeOnce) {
  int next = 0;
  for (const ExitRule& rule : ExitRules()) {
    EXPECT_EQ(rule.least, next);
    EXPECT_GE(rule.most, rule.least);
    next = rule.most + 1;
  }
  EXPECT_EQ(next, 256);
}

TEST(ExitRulesTest, SayWhatFollows) {
  struct Case {
    ExitState exit;
    AfterExit worker, ps;
    int job_code;
  };
  const auto code = [](int n) { return ExitState{false, n}; };
  const auto signal = [](int n) { return ExitState{true, n}; };
  const auto done = AfterExit::kDone, ends = AfterExit::kEndsJob, gone = AfterExit::kGone,
             again = AfterExit::kAgain;
  for (const Case& c :
       {Case{code(0), done, again, 0}, Case{code(1), ends, ends, 1}, Case{code(2), ends, ends, 2},
        Case{code(3), gone, ends, 1}, Case{code(125), gone, ends, 1},
        Case{code(126), ends, ends, 2}, Case{code(127), ends, ends, 2},
        Case{code(128), gone, ends, 1}, Case{code(130), again, again, 0},
        Case{code(137), again, again, 0}, Case{code(138), again, again, 0},
        Case{code(143), again, again, 0}, Case{code(255), again, again, 0},
        Case{signal(SIGKILL), again, again, 0}, Case{signal(SIGSEGV), again, again, 0},
        Case{signal(1), again, again, 0}, Case{signal(64), again, again, 0}}) {
    SCOPED_TRACE(c.exit.ToString());
    const ExitRule& rule = RuleFor(c.exit);
    EXPECT_EQ(rule.worker, c.worker);
    EXPECT_EQ(rule.ps, c.ps);
    EXPECT_EQ(rule.job_code, c.job_code);
  }
}

// Job controllers take 1 to 127 for final and may start again what ends with more.
TEST(ExitRulesTest, TheProgramsOwnCodesMeanTheSameToJobControllers) {
  for (const int final : {kExitFailed, kExitUsage}) {
    EXPECT_LT(final, 128);
    EXPECT_EQ(RuleFor({false, final}).worker, AfterExit::kEndsJob);
  }
  for (const int again : {kExitInterrupted, kExitRestartMe}) {
    EXPECT_GE(again, 128);
    EXPECT_EQ(RuleFor({false, again}).worker, AfterExit::kAgain);
  }
}

std::string InWords(AfterExit then, int job_code, const char* others) {
  switch (then) {
    case AfterExit::kDone:
      return "nothing";
    case AfterExit::kEndsJob:
      return fmt::format("the job ends with {}", job_code);
    case AfterExit::kGone:
      return others;
    case AfterExit::kAgain:
      return "it is started again";
  }
  return "";
}

TEST(ExitRulesTest, DocsShowTheTable) {
  std::ifstream file(PASSEL_SOURCE_DIR "/docs/operating.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const ExitRule& rule : ExitRules()) {
    const std::string codes = rule.least == rule.most
                                  ? std::to_string(rule.least)
                                  : fmt::format("{} to {}", rule.least, rule.most);
    EXPECT_THAT(text, ::testing::HasSubstr(fmt::format(
                          "| {} | {} | {} | {} |", codes, rule.meaning,
                          InWords(rule.worker, rule.job_code, "the others go on without it"),
                          InWords(rule.ps, rule.job_code, ""))));
  }
}

// What a task does, at which time, and the pause before its next life; -1: there is none.
struct Death {
  std::int64_t at_ns;
  bool made_progress;
  std::int64_t pause_ms;
};
struct Series {
  const char* name;
  seconds window;
  RestartPolicy::Counts counts;
  int most;
  std::vector<Death> deaths;
};

TEST(RestartPolicyTest, PausesAndLimits) {
  const auto all = RestartPolicy::Counts::kAllLives;
  const auto in_a_row = RestartPolicy::Counts::kFruitlessInARow;
  const std::vector<Series> table = {
      {"none is allowed", seconds(0), all, 0, {{0, false, -1}, {kOneSecond, true, -1}}},
      {"the whole job",
       seconds(0),
       all,
       2,
       {{0, false, 0}, {5 * kOneSecond, true, 0}, {1'000'000 * kOneSecond, true, -1}}},
      {"an hour",
       seconds(3600),
       all,
       2,
       {{0, true, 0},
        {10 * kOneSecond, true, 0},
        {3599 * kOneSecond, true, -1},
        {3600 * kOneSecond, true, 0},
        {3609 * kOneSecond, true, -1},
        {3610 * kOneSecond, true, 0}}},
      {"pauses double and end at 30 s",
       seconds(0),
       all,
       1000,
       {{0, false, 0},
        {1 * kOneSecond, false, 100},
        {2 * kOneSecond, false, 200},
        {3 * kOneSecond, false, 400},
        {4 * kOneSecond, false, 800},
        {6 * kOneSecond, false, 1600},
        {9 * kOneSecond, false, 3200},
        {14 * kOneSecond, false, 6400},
        {23 * kOneSecond, false, 12800},
        {40 * kOneSecond, false, 25600},
        {80 * kOneSecond, false, 30000},
        {120 * kOneSecond, false, 30000}}},
      {"progress begins the pauses anew, not the count",
       seconds(0),
       all,
       4,
       {{0, false, 0},
        {1 * kOneSecond, false, 100},
        {2 * kOneSecond, true, 0},
        {3 * kOneSecond, false, 100},
        {4 * kOneSecond, true, -1}}},
      {"a restart counts from when it was due",
       seconds(10),
       all,
       2,
       {{0, false, 0},
        {9'950 * kOneMs, false, 100},
        {20 * kOneSecond, false, 200},
        {20'100 * kOneMs, false, 400},
        {20'500 * kOneMs, false, -1}}},
      {"a ps: progress begins all anew",
       seconds(3600),
       in_a_row,
       2,
       {{0, false, 0},
        {1 * kOneSecond, false, 100},
        {3 * kOneSecond, true, 0},
        {4 * kOneSecond, false, 100},
        {5 * kOneSecond, false, -1}}},
  };
  for (const Series& series : table) {
    SCOPED_TRACE(series.name);
    RestartPolicy policy(series.window, series.counts);
    for (const Death& death : series.deaths) {
      SCOPED_TRACE(death.at_ns / kOneMs);
      const std::int64_t now = 7 * kOneSecond + death.at_ns;
      const auto next = policy.Next(now, death.made_progress, series.most);
      EXPECT_EQ(next ? (*next - now) / kOneMs : -1, death.pause_ms);
      EXPECT_LE(policy.used(), series.most);
    }
  }
}

TEST(RestartPolicyTest, TheNumberOfFruitlessLivesMakesNoPauseOverflow) {
  RestartPolicy policy(milliseconds(0), RestartPolicy::Counts::kAllLives);
  std::int64_t now = 0;
  for (int life = 0; life < 200; ++life) {
    const auto next = policy.Next(now, false, 1000);
    ASSERT_TRUE(next.has_value());
    ASSERT_GE(*next, now);
    ASSERT_LE(*next - now, 30 * kOneSecond);
    now = *next;
  }
}

}  // namespace
}  // namespace passel::job::testing
