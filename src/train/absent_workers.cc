#include "train/absent_workers.h"

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/log.h"

namespace passel {

void AbsentWorkers::LookAfterPush() {
  if (all_came_ || !IsRoundMode(store_.mode())) return;
  const std::vector<Member> members = store_.membership();
  const auto running = std::count_if(members.begin(), members.end(),
                                     [](const Member& m) { return m.phase == Phase::kRunning; });
  const auto all =
      std::ranges::count_if(members, [](const Member& m) { return m.phase != Phase::kSpare; });
  all_came_ = true;
  for (const Member& m : members) {
    if (m.epoch > 0) continue;
    if (m.phase == Phase::kExpected) all_came_ = false;
    if (m.phase != Phase::kEvicted) continue;
    if (std::find(never_came_.begin(), never_came_.end(), m.worker) != never_came_.end()) continue;
    never_came_.push_back(m.worker);
    LogWarning(
        "{} did not start within {:g} s (--start_wait): training goes on without it, {} of {} "
        "workers are in the rounds now",
        options_.names(m.worker), ToSeconds(options_.start_wait), running, all);
  }
}

}  // namespace passel
