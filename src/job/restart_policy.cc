#include "job/restart_policy.h"

#include <algorithm>
#include <array>

#include "job/exit_code.h"

namespace passel::job {
namespace {

constexpr auto kDone = AfterExit::kDone;
constexpr auto kEndsJob = AfterExit::kEndsJob;
constexpr auto kGone = AfterExit::kGone;
constexpr auto kAgain = AfterExit::kAgain;

// A ps ends with 0 when somebody else than its supervisor has told it to go.
constexpr std::array<ExitRule, 7> kRules{{
    {0, 0, kDone, kAgain, 0, "done"},
    {1, 1, kEndsJob, kEndsJob, kExitFailed, "training failed for good"},
    {2, 2, kEndsJob, kEndsJob, kExitUsage, "wrong usage, configuration, data or machine"},
    {3, 125, kGone, kEndsJob, kExitFailed, "no code of passel: a library ended the task"},
    {126, 127, kEndsJob, kEndsJob, kExitUsage, "the program, or a library of it, cannot be run"},
    {128, 128, kGone, kEndsJob, kExitFailed, "no code that a program should end with"},
    {129, 255, kAgain, kAgain, 0,
     "told to go, or killed by signal N (128 + N): 130, 137, 138, 143"},
}};

constexpr std::int64_t kFirstPauseNs = 100'000'000;
constexpr std::int64_t kLongestPauseNs = 30'000'000'000;

// After so many fruitless lives in a row, the one that has just ended not counted.
std::int64_t PauseNs(int fruitless) {
  if (fruitless == 0) return 0;
  const int doublings = std::min(fruitless - 1, 16);  // beyond the longest
  return std::min(kLongestPauseNs, kFirstPauseNs << doublings);
}

}  // namespace

std::span<const ExitRule> ExitRules() { return kRules; }

const ExitRule& RuleFor(const ExitState& exit) {
  const int code = exit.signalled ? 128 + exit.code : exit.code;
  return *std::ranges::find_if(kRules,
                               [&](const ExitRule& r) { return code <= r.most || r.most == 255; });
}

std::optional<std::int64_t> RestartPolicy::Next(std::int64_t now_ns, bool made_progress, int most) {
  if (made_progress) {
    fruitless_ = 0;
    if (counts_ == Counts::kFruitlessInARow) restarts_ns_.clear();
  }
  while (window_ns_ > 0 && !restarts_ns_.empty() && now_ns - restarts_ns_.front() >= window_ns_) {
    restarts_ns_.pop_front();
  }
  if (used() >= most) return std::nullopt;
  const std::int64_t at_ns = now_ns + PauseNs(fruitless_++);
  restarts_ns_.push_back(at_ns);
  return at_ns;
}

}  // namespace passel::job
