// The part of a worker in a change of the mode: see mode_change.h.

#include <fmt/core.h>

#include "base/atomic_word.h"
#include "base/failpoint.h"
#include "store/local_lead.h"
#include "store/meeting.h"
#include "store/membership.h"
#include "store/mode_change.h"

namespace passel {
namespace {

// What was said first for this change. A later change's number is not taken back.
std::uint64_t AgreeOn(std::atomic<std::uint64_t>& word, std::uint32_t change, std::uint64_t value) {
  const AgreedNumber mine{change, value};
  std::uint64_t seen = word.load(std::memory_order_seq_cst);
  while (AgreedNumber::Unpack(seen).change < change) {
    if (word.compare_exchange_weak(seen, mine.Pack(), std::memory_order_seq_cst)) return value;
  }
  return AgreedNumber::Unpack(seen).value;
}

}  // namespace

Status LocalLead::EnterMode(const ModeWord& mode) {
  if (mode.setting.mode > kLastMode) {
    return DataLoss(fmt::format("the arena names mode {}, which this build does not know",
                                static_cast<int>(mode.setting.mode)));
  }
  rules_.mode = mode.setting;
  mode_number_ = mode.number;
  if (!rules_.bounded()) return {};
  // Nobody's clock stood still for the others' sake before. All begin at the highest there was;
  // raising one's own clock never takes anybody beyond the bound.
  // A meeting names none: all go on as they were.
  const ModeStart& start = memory_.state->mode.StartOf(mode.number);
  const auto base = AgreedNumber::Unpack(start.clock.load(std::memory_order_seq_cst));
  if (base.change == mode.number && base.value > OwnClock()) {
    RaiseTo(memory_.tasks[worker_].clock, Arrival{epoch_, base.value}.Pack());
    Notify(memory_.state->event);
  }
  return {};
}

bool LocalLead::ChangeDue() {
  // Who has arrived leaves the wish as it is: others may be preparing it.
  if (!rules_.rounds() && !rules_.schedule.empty() && !HasArrivedAt(mode_number_ + 1)) {
    WishForScheduledMode(memory_, rules_.schedule, static_cast<std::uint64_t>(global_step()));
  }
  const auto ended = [&] {
    if (!AModeIsWished(memory_)) return false;
    if (!rules_.rounds()) return true;
    const Decision last = Decision::Unpack(memory_.state->decision.load(std::memory_order_seq_cst));
    return last.ends == Decision::EndOf(mode_number_) && completed_round() >= last.round;
  };
  // The mode comes last: of a change at which we have arrived, the others may make an end at any
  // time, and then neither the wish nor the decision says any more what it said. Or we were fenced
  // off.
  return ended() || Changed();
}

std::uint32_t LocalLead::EndsWith(std::uint64_t round) {
  if (!rules_.schedule.empty()) WishForScheduledMode(memory_, rules_.schedule, round);
  return AModeIsWished(memory_) ? Decision::EndOf(mode_number_) : 0;
}

bool LocalLead::HasArrivedAt(std::uint32_t number) const {
  return Arrival::Says(memory_.tasks[worker_].change_arrival.load(std::memory_order_seq_cst),
                       epoch_, number);
}

// From the look at the mode on whoever joins makes the publishing swap fail.
bool LocalLead::AllHaveArrived() {
  std::uint64_t seen = memory_.state->mode.current.load(std::memory_order_seq_cst);
  const std::uint32_t next = ModeWord::Unpack(seen).number + 1;
  const ModeWord wish = ModeWord::Unpack(memory_.state->mode.wish.load(std::memory_order_seq_cst));
  if (next != mode_number_ + 1 || wish.number != next) return false;
  // Behind the wish, which is made after the hold. Once that is over it stays so.
  if (IsHeldBack(memory_, next)) return false;
  if (!MissingAtChange(memory_, next).empty() || !life_->Alive()) return false;
  seen_mode_ = seen;
  return true;
}

Result<std::optional<std::uint64_t>> LocalLead::AwaitChange(Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(CheckAlive());
  life_->Heartbeat();
  const std::uint32_t next = mode_number_ + 1;
  Failpoint("mode.due");
  const bool arrived_before = HasArrivedAt(next);
  // Sequentially consistent: of several that arrive at once the last one sees all the others.
  RaiseTo(memory_.tasks[worker_].change_arrival, Arrival{epoch_, next}.Pack());
  Failpoint("mode.arrived");
  seen_mode_ = 0;
  bool ready = AllHaveArrived();
  // Whoever has called a meeting waits for this.
  if (!arrived_before && IsHeldBack(memory_, next)) Notify(memory_.state->event);
  Wait(
      deadline, [&] { return ready || Changed() || stopped() || !life_->CheckWait().ok(); },
      [&] {
        life_->watch().LookAfter(MissingAtChange(memory_, next), WaitingOn::kChange, next);
        ready = AllHaveArrived();
      });
  PASSEL_RETURN_IF_ERROR(life_->CheckWait());
  if (Changed()) return std::optional<std::uint64_t>();
  if (stopped()) return Cancelled("the job was stopped before its mode changed");
  if (!ready) {
    const std::vector<Member> missing = MissingAtChange(memory_, next);
    return DeadlineExceeded(
        missing.empty() ? "the mode has not changed, or all have met and are not let go on yet"
                        : fmt::format("{} has not ended its last step before the mode changes",
                                      Name(missing.front().worker)));
  }
  // From here on nobody makes a step before the change is published: who joins arrives first.
  const ModeWord current = ModeWord::Unpack(seen_mode_);
  const std::uint64_t step = IsRoundMode(current.setting.mode)
                                 ? completed_round()
                                 : static_cast<std::uint64_t>(global_step());
  ModeState& mode = memory_.state->mode;
  const ModeWord wish = ModeWord::Unpack(mode.wish.load(std::memory_order_seq_cst));
  // Others have published it meanwhile, and the next one is wished for.
  if (wish.number != next) return std::optional<std::uint64_t>();
  ModeStart& start = mode.StartOf(next);
  const std::uint64_t agreed = AgreeOn(start.since, next, step);
  const auto last =
      AgreedNumber::Unpack(mode.StartOf(mode_number_).record.load(std::memory_order_seq_cst));
  if (wish.IsMeetingIn(current)) {
    AgreeOn(start.record, next, last.value);
  } else {
    AgreeOn(start.clock, next, HighestClock(memory_));
    const std::uint64_t place = AgreeOn(start.record, next, last.value + 1);
    ModeRecord& record = mode.records[place % ModeState::kRecords];
    AgreeOn(record.since, next, agreed);
    RaiseTo(record.setting, wish.Pack());
  }
  PASSEL_RETURN_IF_ERROR(CheckAlive());  // by now the record may be another change's
  return std::optional<std::uint64_t>(agreed);
}

Status LocalLead::PublishChange() {
  if (seen_mode_ == 0) return {};
  Failpoint("mode.prepared");
  ModeState& mode = memory_.state->mode;
  const ModeWord next = ModeWord::Unpack(mode.wish.load(std::memory_order_seq_cst));
  if (next.number != mode_number_ + 1) return {};
  if (mode.current.compare_exchange_strong(seen_mode_, next.Pack(), std::memory_order_seq_cst)) {
    Failpoint("mode.published");
    Notify(memory_.state->event);
  }
  seen_mode_ = 0;
  return {};
}

}  // namespace passel
