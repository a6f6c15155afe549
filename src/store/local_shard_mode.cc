// The part of a worker in a change of the mode: see mode_change.h.

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/failpoint.h"
#include "store/histogram.h"
#include "store/local_shard.h"
#include "store/membership.h"
#include "store/mode_change.h"
#include "store/raise_to.h"

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

ModeWord LocalShard::CurrentMode() const { return passel::CurrentMode(memory_); }

Status LocalShard::EnterMode(const ModeWord& mode) {
  if (mode.setting.mode > kLastMode) {
    return DataLoss(fmt::format("the arena names mode {}, which this build does not know",
                                static_cast<int>(mode.setting.mode)));
  }
  rules_.Set(mode.setting);
  mode_number_ = mode.number;
  // On the other shards, for who looks at that shard alone. On the lead it is there already.
  RaiseTo(memory_.state->mode.current,
          ModeWord{mode.number, 0, mode.scheduled, mode.setting}.Pack());
  if (IsRoundMode(rules_.mode) && rules_.Quota(worker_) > 1 && addend_ == nullptr) {
    const std::size_t bytes = (memory_.floats * sizeof(float) + 63) / 64 * 64 + 64;
    addend_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (addend_ == nullptr) {
      return ResourceExhausted(fmt::format(
          "no memory for {} bytes of gradient: use a smaller model, or a --replicas_to_aggregate "
          "of at most {}, the number of workers",
          bytes, rules_.num_workers));
    }
    std::memset(addend_.get(), 0, bytes);
  }
  if (rules_.mode == Mode::kSsp) {
    // Nobody's clock stood still for the others' sake before. All begin at the highest there was;
    // raising one's own clock never takes anybody beyond the bound.
    const ModeRecord& record = memory_.state->mode.records[mode.number % ModeState::kRecords];
    const auto base = AgreedNumber::Unpack(record.clock.load(std::memory_order_seq_cst));
    if (base.change == mode.number && base.value > OwnClock()) {
      RaiseTo(memory_.tasks[worker_].clock, StepClock{epoch_, base.value}.Pack());
      Notify(memory_.state->event);
    }
  }
  return {};
}

bool LocalShard::ChangeDue() {
  if (!IsRoundMode(rules_.mode) && !rules_.schedule.empty()) {
    WishForScheduledMode(memory_, rules_.schedule, static_cast<std::uint64_t>(global_step()));
  }
  const auto ended = [&] {
    if (!AModeIsWished(memory_)) return false;
    if (!IsRoundMode(rules_.mode)) return true;
    const Decision last = Decision::Unpack(memory_.state->decision.load(std::memory_order_seq_cst));
    return last.ends == Decision::EndOf(mode_number_) && completed_round() >= last.round;
  };
  // The mode comes last: of a change at which we have arrived, the others may make an end at any
  // time, and then neither the wish nor the decision says any more what it said. Or we were fenced
  // off.
  return ended() || CurrentModeNumber(memory_) != mode_number_;
}

std::uint32_t LocalShard::EndsWith(std::uint64_t round) {
  if (!rules_.schedule.empty()) WishForScheduledMode(memory_, rules_.schedule, round);
  return AModeIsWished(memory_) ? Decision::EndOf(mode_number_) : 0;
}

Status LocalShard::ArriveAtChange() {
  PASSEL_RETURN_IF_ERROR(CheckAlive());
  Heartbeat();
  Failpoint("mode.due");
  // Sequentially consistent: of several that arrive at once the last one sees all the others.
  RaiseTo(memory_.tasks[worker_].change_arrival, Arrival{epoch_, mode_number_ + 1}.Pack());
  Failpoint("mode.arrived");
  return {};
}

void LocalShard::PrepareChange(std::uint64_t step) {
  for (std::size_t b = 0; b < memory_.num_blocks; ++b) RaiseTo(memory_.blocks[b].round, step);
  RaiseTo(memory_.state->completed_round, step);
  std::uint64_t seen = memory_.state->decision.load(std::memory_order_seq_cst);
  Decision next;
  do {
    next = Decision::Unpack(seen).NextGeneration();  // what a fenced worker decides now, fails
    if (next.round < step) {
      next = {step, next.generation, 0, 0};
    } else if (next.round == step && next.ends != Decision::EndOf(mode_number_)) {
      next.ends = 0;  // of a mode long ago
    }
  } while (
      !memory_.state->decision.compare_exchange_weak(seen, next.Pack(), std::memory_order_seq_cst));
}

void LocalShard::TryChange(const std::function<void(std::uint64_t)>& prepare_all) {
  ModeState& mode = memory_.state->mode;
  std::uint64_t seen = mode.current.load(std::memory_order_seq_cst);
  const ModeWord current = ModeWord::Unpack(seen);
  const ModeWord next = ModeWord::Unpack(mode.wish.load(std::memory_order_seq_cst));
  if (current.number != mode_number_ || next.number != current.number + 1) return;
  if (!passel::MissingAtChange(memory_, next.number).empty() || !Alive()) return;
  // From here on nobody makes a step before the change is published: who joins arrives first.
  const std::uint64_t step = IsRoundMode(current.setting.mode)
                                 ? completed_round()
                                 : static_cast<std::uint64_t>(global_step());
  ModeRecord& record = mode.records[next.number % ModeState::kRecords];
  const std::uint64_t agreed = AgreeOn(record.since, next.number, step);
  AgreeOn(record.clock, next.number, HighestClock(memory_));
  RaiseTo(record.setting, next.Pack());
  if (!Alive()) return;  // by now the record may be another change's
  prepare_all(agreed);
  Failpoint("mode.prepared");
  if (mode.current.compare_exchange_strong(seen, next.Pack(), std::memory_order_seq_cst)) {
    Failpoint("mode.published");
    Notify(memory_.state->event);
  }
}

Status LocalShard::AwaitChange(Deadline deadline,
                               const std::function<void(std::uint64_t)>& prepare_all) {
  const auto changed = [&] { return CurrentModeNumber(memory_) != mode_number_; };
  TryChange(prepare_all);
  WaitFor(
      memory_.state->event, options_.spin, deadline,
      [&] { return changed() || stopped() || !CheckWait().ok(); },
      [&] {
        Heartbeat();
        watch_->LookAfter(MissingAtChange(), Watch::For::kChange, mode_number_ + 1);
        TryChange(prepare_all);
      });
  Heartbeat();
  PASSEL_RETURN_IF_ERROR(CheckWait());
  if (changed()) return {};
  if (stopped()) return Cancelled("the job was stopped before its mode changed");
  const std::vector<Member> missing = MissingAtChange();
  return DeadlineExceeded(
      missing.empty() ? "the mode has not changed"
                      : fmt::format("{} has not ended its last step before the mode changes",
                                    options_.names(missing.front().worker)));
}

std::vector<Member> LocalShard::MissingAtChange() const {
  return passel::MissingAtChange(memory_, mode_number_ + 1);
}

}  // namespace passel
