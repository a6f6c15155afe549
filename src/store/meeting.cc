#include "store/meeting.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/event_word.h"
#include "base/log.h"
#include "store/membership.h"
#include "store/mode_change.h"

namespace passel {
namespace {

// Whoever arrives last wakes us.
constexpr std::chrono::microseconds kSpin{20};
// A hold that was ended on purpose, or by others.
constexpr std::uint64_t kOver = 0;

std::uint64_t NowMs() { return static_cast<std::uint64_t>(MonotonicNs()) / 1'000'000; }

std::uint64_t NewHold(std::uint32_t change) {
  constexpr auto kLeaseMs =
      static_cast<std::uint64_t>(std::chrono::milliseconds(Meeting::kLease).count());
  return AgreedNumber{change, NowMs() + kLeaseMs}.Pack();
}

bool SomebodyRuns(const ShardMemory& lead) {
  return std::ranges::any_of(Membership(lead), [](const Member& m) {
    return m.phase == Phase::kJoining || m.phase == Phase::kRunning;
  });
}

// Since the last meeting, or change of the mode. Who is slow to go on would meet for ever.
bool HaveGoneOn(const ShardMemory& lead, const ModeWord& current) {
  const auto since = AgreedNumber::Unpack(
      lead.state->mode.StartOf(current.number).since.load(std::memory_order_seq_cst));
  if (current.number == 0 || since.change != current.number) return true;
  const std::int64_t step = lead.state->global_step.load(std::memory_order_seq_cst);
  return static_cast<std::uint64_t>(step) != since.value || !SomebodyRuns(lead);
}

bool Counts(AgreedNumber hold, std::uint32_t change) {
  return hold.change == change && hold.value != kOver && NowMs() < hold.value;
}

Status Lapsed() {
  return Aborted(fmt::format(
      "the workers went on before this was done: they wait {} s for whoever lets them meet, and it "
      "did not answer for longer; try again, on a machine that is less busy",
      Meeting::kLease.count()));
}

}  // namespace

bool IsHeldBack(const ShardMemory& lead, std::uint32_t number) {
  std::atomic<std::uint64_t>& word = lead.state->mode.hold;
  std::uint64_t seen = word.load(std::memory_order_seq_cst);
  const AgreedNumber hold = AgreedNumber::Unpack(seen);
  if (hold.change != number || hold.value == kOver) return false;
  if (Counts(hold, number)) return true;
  // Out of date. It is ended first, and then the workers go on: its caller cannot renew it any more
  // and learns that.
  if (!word.compare_exchange_strong(seen, AgreedNumber{number, kOver}.Pack(),
                                    std::memory_order_seq_cst)) {
    return true;  // renewed, or ended, at this moment: the next look says which
  }
  LogWarning("who let the workers meet has not answered for {} s: they go on",
             Meeting::kLease.count());
  return false;
}

Result<Meeting> Meeting::Call(const ShardMemory& lead, WorkerNames names) {
  ModeState& mode = lead.state->mode;
  for (;;) {
    if (lead.state->initialized.load(std::memory_order_seq_cst) == 0) {
      return FailedPrecondition("the variables have no values yet: try again in a moment");
    }
    std::uint64_t wish = mode.wish.load(std::memory_order_seq_cst);
    const ModeWord current = CurrentMode(lead);
    const Status ready = CheckNothingIsWished(lead, current, ModeWord::Unpack(wish));
    // A meeting that is over, and nobody runs who would go on from it: it is taken up again.
    const bool again = ready.code() == Code::kAlreadyExists &&
                       ModeWord::Unpack(wish).IsMeetingIn(current) && !SomebodyRuns(lead);
    if (!ready.ok() && !again) return ready.WithContext("the workers cannot meet");
    if (!HaveGoneOn(lead, current)) {
      return AlreadyExists(
          "the workers have met, or changed their mode, and have made no step since: try again "
          "when "
          "they have");
    }
    const ModeWord next{current.number + 1, 0, current.scheduled, current.setting};
    // The hold first: nobody publishes a change that is not wished for yet.
    std::uint64_t seen = mode.hold.load(std::memory_order_seq_cst);
    if (Counts(AgreedNumber::Unpack(seen), next.number)) {
      return AlreadyExists(
          "somebody else calls the workers together: try again when they have met");
    }
    const std::uint64_t hold = NewHold(next.number);
    if (!mode.hold.compare_exchange_strong(seen, hold, std::memory_order_seq_cst)) continue;
    Meeting meeting(lead, names, next.number, hold);
    if (again) return meeting;
    if (!mode.wish.compare_exchange_strong(wish, next.Pack(), std::memory_order_seq_cst)) continue;
    Notify(lead.state->event);  // who waits for slower ones (ssp) need not any more
    return meeting;
  }
}

Meeting::~Meeting() { (void)End(); }

// Nobody is in a step, and nobody begins one before the change is published.
bool Meeting::AllAreHere() const {
  // Before the look at the members: who joins changes it.
  std::uint64_t seen = lead_.state->decision.load(std::memory_order_seq_cst);
  if (!MissingAtChange(lead_, number_).empty()) return false;
  if (!IsRoundMode(CurrentMode(lead_).setting.mode)) return true;
  Decision last = Decision::Unpack(seen);
  // Its members died, and whoever joins next finishes it before it comes here.
  if (lead_.state->completed_round.load(std::memory_order_seq_cst) < last.round) return false;
  const std::uint32_t end = Decision::EndOf(number_ - 1);
  if (last.ends == end) return true;
  // Nobody runs, who would have decided a last round. Who joins must not begin another one.
  last.ends = end;
  return lead_.state->decision.compare_exchange_strong(seen, last.Pack(),
                                                       std::memory_order_seq_cst);
}

Result<std::int64_t> Meeting::Await(Deadline deadline) {
  Status held;
  bool here = false;
  const auto look = [&] {
    here = AllAreHere();
    // Behind the look: so it was held all the while.
    if (here) held = IsPublished() ? Lapsed() : Renew();
    return here || !held.ok();
  };
  WaitFor(lead_.state->event, kSpin, deadline, look, [&] {
    MarkDeadByKernel(lead_);
    held = Renew();
  });
  PASSEL_RETURN_IF_ERROR(held);
  if (here) return lead_.state->global_step.load(std::memory_order_acquire);
  const std::vector<Member> missing = MissingAtChange(lead_, number_);
  return DeadlineExceeded(
      missing.empty()
          ? "a round is applied in part, and no worker runs who could finish it: start one"
          : fmt::format("{} has not ended its step: give it more time, or look after it",
                        names_(missing.front().worker)));
}

Status Meeting::Renew() {
  const std::uint64_t hold = NewHold(number_);
  std::uint64_t mine = hold_;
  if (!lead_.state->mode.hold.compare_exchange_strong(mine, hold, std::memory_order_seq_cst)) {
    return Lapsed();
  }
  hold_ = hold;
  return {};
}

// Of a meeting that was taken up again, by who had joined and seen the former hold end.
bool Meeting::IsPublished() const { return CurrentModeNumber(lead_) >= number_; }

Status Meeting::End() {
  std::uint64_t mine = std::exchange(hold_, 0);
  if (mine == 0) return {};
  const bool published = IsPublished();
  if (!lead_.state->mode.hold.compare_exchange_strong(mine, AgreedNumber{number_, kOver}.Pack(),
                                                      std::memory_order_seq_cst)) {
    return Lapsed();
  }
  Notify(lead_.state->event);
  return published ? Lapsed() : Status();
}

}  // namespace passel
