#include <fmt/core.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "job/supervisor.h"
#include "store/membership.h"
#include "store/scale.h"

// More workers, or fewer, while the job trains: `passel ctl scale`.

namespace passel::job {

// Looks for a wish, and whether the one before is seen to.
void Supervisor::Scale() {
  if (stopping_) return;
  const ShardMemory& lead = arenas_[0]->memory();
  const ScaleWord wish = WishedScale(lead);
  if (wish.number == DoneScale(lead).number) return;
  // Another life of the ps may have let somebody in who writes what it likes.
  const bool valid = wish.workers >= 1 && wish.workers <= static_cast<unsigned>(lead.num_workers);
  if (valid && wish.number != scale_seen_ && !any_worker_done_) {
    BeginScaling(static_cast<int>(wish.workers));
  }
  scale_seen_ = wish.number;
  const std::int64_t now = MonotonicNs();
  for (Child& child : children_) {
    if (!child.process || child.leave_by_ns == 0 || now < child.leave_by_ns) continue;
    child.leave_by_ns = 0;
    child.stalled = true;
    LogWarning("{} was asked to leave and has not for {:g} s (--stall_limit): killing it",
               child.Name(), 1e-9 * static_cast<double>(config_.stall_limit_ns));
    child.process->Signal(SIGKILL);
  }
  if (!ScalingIsOver()) return;
  Failpoint("supervisor.scaled");
  EndScaling(lead, wish);
}

void Supervisor::BeginScaling(int workers) {
  LogInfo("the job is to have {} worker{}", workers, workers == 1 ? "" : "s");
  outcome_.lives.Add(ScaleChange{workers, SinceStart()});
  for (Child& child : children_) {
    if (child.job != "worker") continue;
    child.wanted = child.index < workers;
    if (child.wanted && !child.process && child.start_at_ns == 0) {
      child.gone = child.stalled = false;
      child.leave_by_ns = 0;
      child.end.clear();
      child.last_exit.reset();
      child.start_at_ns = MonotonicNs();
    } else if (!child.wanted) {
      child.gone = false;
      child.start_at_ns = 0;
      if (!child.process) continue;
      if (config_.on_stall != OnStall::kWait) {
        child.leave_by_ns = MonotonicNs() + config_.stall_limit_ns;
      }
      End(*child.process);
    }
    Failpoint("supervisor.scaling");
  }
  StartThoseWhoseTimeHasCome();
}

// Everybody who is wanted trains, or has died for good, and nobody else is there.
bool Supervisor::ScalingIsOver() const {
  const ShardMemory& lead = arenas_[0]->memory();
  for (const Child& child : children_) {
    if (child.job != "worker") continue;
    if (!child.wanted && child.process) return false;
    if (!child.wanted) continue;
    if (child.start_at_ns != 0) return false;
    if (child.process && StateOf(lead, child.index).phase != Phase::kRunning) return false;
  }
  return true;
}

// It has ended as it was asked to.
void Supervisor::HandleLeaving(Child& child) {
  child.end = "left";
  child.leave_by_ns = 0;
  MarkDeadEverywhere(child);  // if it had not joined yet
  outcome_.lives.Add(TaskLeave{child.Name(), child.starts, SinceStart()});
  LogInfo("{} left", child.Name());
}

}  // namespace passel::job
