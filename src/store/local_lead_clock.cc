// Bounded staleness: a worker begins a step only if it has completed at most s steps more than the
// slowest one.
//
// Each worker counts its steps in its own clock word, and looks at the others' when it has
// completed one. Workers that died, left, were evicted or never joined hold nobody up. A worker
// that joins publishes its clock before it runs (see Join() in membership.cc), so that nobody can
// get away from it in between.

#include <fmt/core.h>

#include <algorithm>

#include "base/atomic_word.h"
#include "base/failpoint.h"
#include "store/local_lead.h"
#include "store/membership.h"

namespace passel {

std::uint64_t LocalLead::OwnClock() const {
  const StepClock clock =
      StepClock::Unpack(memory_.tasks[worker_].clock.load(std::memory_order_relaxed));
  return clock.steps;
}

Status LocalLead::CountUpdate(std::int64_t* global_step) {
  *global_step = memory_.state->global_step.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (rules_.mode != Mode::kSsp) return {};
  const std::uint64_t before = OwnClock();
  // A successor's clock is larger: a life that was fenced off cannot move it.
  RaiseTo(memory_.tasks[worker_].clock, StepClock{epoch_, before + 1}.Pack());
  Failpoint("ssp.completed");
  // Only the last one at the lowest clock raises the minimum that others may wait for. Of several
  // that leave it at once, the last one sees the others' new clocks.
  const auto slowest = SlowestClock(memory_, worker_, /*joining=*/true);
  if (slowest && *slowest > before) Notify(memory_.state->event);
  return {};
}

std::uint64_t LocalLead::ClockLead() const {
  const std::uint64_t own = OwnClock();
  const std::uint64_t slowest = SlowestClock(memory_, worker_, /*joining=*/false).value_or(own);
  return own > slowest ? own - slowest : 0;
}

std::vector<Member> LocalLead::TooFarBehind() const {
  const std::uint64_t own = OwnClock();
  std::vector<std::pair<std::uint64_t, Member>> behind;
  for (const Member& member : Membership(memory_)) {
    if (member.worker == worker_) continue;
    if (member.phase != Phase::kRunning && member.phase != Phase::kJoining) continue;
    const StepClock clock =
        StepClock::Unpack(memory_.tasks[member.worker].clock.load(std::memory_order_relaxed));
    if (!clock.IsOf(member.epoch)) continue;
    if (clock.steps + static_cast<std::uint64_t>(rules_.staleness_bound) >= own) continue;
    behind.emplace_back(clock.steps, member);
  }
  std::stable_sort(behind.begin(), behind.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Member> members;
  for (auto& [clock, member] : behind) members.push_back(member);
  return members;
}

Status LocalLead::AwaitSlowest(Deadline deadline) {
  const std::uint64_t own = OwnClock();
  const auto bound = static_cast<std::uint64_t>(rules_.staleness_bound);
  bool near_enough = false;
  // Then nobody begins a step any more, and who is behind need not come nearer.
  const auto over = [&] { return ChangeDue(); };
  const auto done = [&] {
    near_enough = SlowestClock(memory_, worker_, /*joining=*/true).value_or(own) + bound >= own;
    return near_enough || stopped() || over() || !life_->CheckWait().ok();
  };
  Wait(deadline, done, [&] { life_->watch().LookAfter(TooFarBehind(), WaitingOn::kStep, own); });
  PASSEL_RETURN_IF_ERROR(life_->CheckWait());
  if (near_enough || over()) return {};
  if (stopped()) return Cancelled("the job was stopped while a worker waited for slower ones");
  const std::vector<Member> behind = TooFarBehind();
  if (behind.empty()) return {};  // it came nearer at this moment
  return DeadlineExceeded(fmt::format("{} is more than {} steps behind {}",
                                      Name(behind.front().worker), bound, Name(worker_)));
}

}  // namespace passel
