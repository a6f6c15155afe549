#include "store/local_lead.h"

#include <algorithm>

#include "base/atomic_word.h"
#include "base/check.h"
#include "store/mode_change.h"

namespace passel {

LocalLead::LocalLead(std::shared_ptr<LocalWorker> life)
    : life_(std::move(life)),
      memory_(life_->lead()),
      worker_(life_->index()),
      epoch_(life_->epoch()),
      rules_(life_->rules()) {}

Status LocalLead::Leave(Phase end) {
  if (left_) return {};
  left_ = true;
  if (!passel::Leave(memory_, worker_, epoch_, end)) return CheckAlive();
  return {};
}

void LocalLead::Stop() {
  memory_.state->stop.store(1, std::memory_order_seq_cst);
  Notify(memory_.state->event);
}

std::vector<Member> LocalLead::Missing(WaitingOn what, std::uint64_t number) const {
  switch (what) {
    case WaitingOn::kRound:
      return MissingIn(number);
    case WaitingOn::kStep:
      return TooFarBehind();
    case WaitingOn::kChange:
      return MissingAtChange(memory_, static_cast<std::uint32_t>(number));
  }
  return {};
}

Status LocalLead::Restore(const JobProgress& progress) {
  std::uint64_t highest = 0;
  for (std::size_t k = 0; k < progress.workers.size(); ++k) {
    const JobProgress::Worker& worker = progress.workers[k];
    highest = std::max(highest, worker.clock);
    if (k >= static_cast<std::size_t>(memory_.num_workers)) continue;
    // Relaxed, as the step: written before the shards are opened.
    WorkerCounters& counters = memory_.tasks[k].counters;
    counters.cursor_epochs.store(worker.cursor_epochs, std::memory_order_relaxed);
    counters.cursor_index.store(worker.cursor_index, std::memory_order_relaxed);
  }
  memory_.state->global_step.store(progress.global_step, std::memory_order_relaxed);
  const ModeWord mode = RestoreMode(progress.global_step);
  // As after a change of the mode: all begin at the highest clock there was (EnterMode()).
  memory_.state->mode.records[mode.number % ModeState::kRecords].clock.store(
      AgreedNumber{mode.number, highest}.Pack(), std::memory_order_seq_cst);
  return {};
}

// The mode that the schedule has by `step` takes the place of the first one, in which nobody has
// made a step: all wait for the first values.
ModeWord LocalLead::RestoreMode(std::int64_t step) {
  const std::vector<ScheduledMode>& schedule = rules_.schedule;
  std::uint32_t begun = 0;
  while (begun < schedule.size() && schedule[begun].step <= step) ++begun;
  ModeWord mode = CurrentMode();
  if (begun == 0) return mode;
  const ScheduledMode& last = schedule[begun - 1];
  mode = {mode.number, 0, begun, last.setting};
  ModeState& state = memory_.state->mode;
  ModeRecord& record = state.records[mode.number % ModeState::kRecords];
  record.since.store(AgreedNumber{mode.number, static_cast<std::uint64_t>(last.step)}.Pack(),
                     std::memory_order_seq_cst);
  record.setting.store(mode.Pack(), std::memory_order_seq_cst);
  Replace(state.current, [&](std::uint64_t word) {
    mode.generation = ModeWord::Unpack(word).generation;  // others join meanwhile
    return mode.Pack();
  });
  return mode;
}

}  // namespace passel
