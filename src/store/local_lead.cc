#include "store/local_lead.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/atomic_word.h"
#include "base/failpoint.h"
#include "store/mode_change.h"
#include "store/shared_batches.h"

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
  std::int64_t local_steps = 0;
  for (std::size_t k = 0; k < progress.workers.size(); ++k) {
    const JobProgress::Worker& worker = progress.workers[k];
    highest = std::max(highest, worker.clock);
    if (k >= static_cast<std::size_t>(memory_.num_workers)) continue;
    // Relaxed, as the step: written before the shards are opened.
    WorkerCounters& counters = memory_.tasks[k].counters;
    counters.cursor_epochs.store(worker.cursor_epochs, std::memory_order_relaxed);
    counters.cursor_index.store(worker.cursor_index, std::memory_order_relaxed);
    counters.local_steps.store(worker.local_steps, std::memory_order_relaxed);
    local_steps += static_cast<std::int64_t>(worker.local_steps);
  }
  memory_.state->restored_step.store(progress.global_step, std::memory_order_relaxed);
  memory_.state->restored_local_steps.store(local_steps, std::memory_order_relaxed);
  memory_.state->global_step.store(progress.global_step, std::memory_order_relaxed);
  RestoreBatches(memory_, progress.batches);
  const ModeWord mode = RestoreMode(progress.global_step);
  // As after a change of the mode: all begin at the highest clock there was (EnterMode()).
  memory_.state->mode.StartOf(mode.number)
      .clock.store(AgreedNumber{mode.number, highest}.Pack(), std::memory_order_seq_cst);
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
  const auto place =
      AgreedNumber::Unpack(state.StartOf(mode.number).record.load(std::memory_order_seq_cst));
  ModeRecord& record = state.records[place.value % ModeState::kRecords];
  record.since.store(AgreedNumber{mode.number, static_cast<std::uint64_t>(last.step)}.Pack(),
                     std::memory_order_seq_cst);
  record.setting.store(mode.Pack(), std::memory_order_seq_cst);
  Replace(state.current, [&](std::uint64_t word) {
    mode.generation = ModeWord::Unpack(word).generation;  // others join meanwhile
    return mode.Pack();
  });
  return mode;
}

// --- Bounded staleness ---------------------------------------------------------------------------
//
// A worker begins a step only if it has completed at most s steps more than the slowest one.
//
// Each worker counts its steps in its own clock word, and looks at the others' when it has
// completed one. Workers that died, left, were evicted or never joined hold nobody up. A worker
// that joins publishes its clock before it runs (see Join() in membership.cc), so that nobody can
// get away from it in between.

std::uint64_t LocalLead::OwnClock() const {
  const Arrival clock =
      Arrival::Unpack(memory_.tasks[worker_].clock.load(std::memory_order_relaxed));
  return clock.at;
}

Status LocalLead::CountUpdate(std::int64_t* global_step) {
  *global_step = memory_.state->global_step.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (!rules_.bounded()) return {};
  const std::uint64_t before = OwnClock();
  // A successor's clock is larger: a life that was fenced off cannot move it.
  RaiseTo(memory_.tasks[worker_].clock, Arrival{epoch_, before + 1}.Pack());
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
  std::vector<std::uint64_t> steps(static_cast<std::size_t>(memory_.num_workers));
  std::vector<Member> behind = Membership(memory_);
  std::erase_if(behind, [&](const Member& m) {
    if (m.worker == worker_ || !MayCome(m.phase) || m.phase == Phase::kExpected) return true;
    const Arrival clock =
        Arrival::Unpack(memory_.tasks[m.worker].clock.load(std::memory_order_relaxed));
    steps[static_cast<std::size_t>(m.worker)] = clock.at;
    return !clock.IsOf(m.epoch) || clock.at + static_cast<std::uint64_t>(rules_.mode.number) >= own;
  });
  std::ranges::stable_sort(
      behind, {}, [&](const Member& m) { return steps[static_cast<std::size_t>(m.worker)]; });
  return behind;
}

bool LocalLead::NearEnough(std::uint64_t steps) const {
  const std::uint64_t own = OwnClock() + steps;
  const auto bound = static_cast<std::uint64_t>(rules_.mode.number);
  return SlowestClock(memory_, worker_, /*joining=*/true).value_or(own) + bound >= own;
}

Status LocalLead::AwaitSlowest(Deadline deadline) {
  const std::uint64_t own = OwnClock();
  bool near_enough = false;
  // Then nobody begins a step any more, and who is behind need not come nearer.
  const auto over = [&] { return ChangeDue(); };
  const auto done = [&] {
    near_enough = NearEnough(0);
    return near_enough || stopped() || over() || !life_->CheckWait().ok();
  };
  Wait(deadline, done, [&] { life_->watch().LookAfter(TooFarBehind(), WaitingOn::kStep, own); });
  PASSEL_RETURN_IF_ERROR(life_->CheckWait());
  if (near_enough || over()) return {};
  if (stopped()) return Cancelled("the job was stopped while a worker waited for slower ones");
  const std::vector<Member> behind = TooFarBehind();
  if (behind.empty()) return {};  // it came nearer at this moment
  return DeadlineExceeded(fmt::format("{} is more than {} steps behind {}",
                                      Name(behind.front().worker), rules_.mode.number,
                                      Name(worker_)));
}

}  // namespace passel
