#include "store/local_lead.h"

#include <algorithm>

#include "base/check.h"
#include "base/raise_to.h"
#include "store/mode_change.h"

namespace passel {

LocalLead::LocalLead(std::shared_ptr<LocalWorker> life)
    : life_(std::move(life)),
      memory_(life_->lead()),
      worker_(life_->index()),
      epoch_(life_->epoch()),
      rules_(life_->rules()) {}

bool LocalLead::stopped() const { return memory_.state->stop.load(std::memory_order_acquire) != 0; }

std::int64_t LocalLead::global_step() const {
  return memory_.state->global_step.load(std::memory_order_acquire);
}

std::uint64_t LocalLead::completed_round() const {
  return memory_.state->completed_round.load(std::memory_order_acquire);
}

ModeWord LocalLead::CurrentMode() const { return passel::CurrentMode(memory_); }

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
  // As after a change of the mode: all begin at the highest clock there was (EnterMode()).
  const ModeWord mode = CurrentMode();
  memory_.state->mode.records[mode.number % ModeState::kRecords].clock.store(
      AgreedNumber{mode.number, highest}.Pack(), std::memory_order_seq_cst);
  return EnterMode(mode);
}

}  // namespace passel
