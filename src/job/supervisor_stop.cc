#include "job/supervisor.h"

#include <csignal>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "job/exit_code.h"

// The wish to end, from whom it comes, and how it reaches the tasks.

namespace passel::job {
namespace {

// Within which an evaluator that has nothing to do sees that the job has ended.
constexpr std::chrono::milliseconds kLook{500};

}  // namespace

void Supervisor::HandleSignal(int signal) {
  if (stopping_ && outcome_.interrupted) {
    LogWarning("{} again: ending at once", SignalName(signal));
    KillAll();
    return;
  }
  LogInfo("{}: ending after the current step; once more to end at once", SignalName(signal));
  BeginStopping(signal == SIGINT ? kExitInterrupted : kExitRestartMe, true);
}

void Supervisor::BeginStopping(int exit_code, bool interrupted) {
  if (!stopping_) {
    nvtx::Mark(nvtx::Event::kStopping, exit_code);
    stopping_ = true;
    kill_at_ns_ = MonotonicNs() + static_cast<std::int64_t>(options_.grace * 1e9);
  }
  // A failure after a wish to end does not change the answer to the wish, and the other way round.
  if (outcome_.exit_code == 0) outcome_.exit_code = exit_code;
  outcome_.interrupted |= interrupted;
  if (!arenas_.empty() && arenas_[0]) SetStopFlag();
  for (Child& child : children_) {
    if (child.start_at_ns != 0) {  // it will not come back
      child.start_at_ns = 0;
      child.gone = true;
      if (child.job == "worker") MarkDeadEverywhere(child);
    }
    if (child.job == "worker" && child.process) End(*child.process);
  }
}

void Supervisor::SetStopFlag() {
  arenas_[0]->memory().state->stop.store(1, std::memory_order_seq_cst);
  Notify(arenas_[0]->memory().state->event);
}

bool Supervisor::StopFlag() const {
  return arenas_[0] && arenas_[0]->memory().state->stop.load(std::memory_order_seq_cst) != 0;
}

// A process that somebody stopped would not notice.
void Supervisor::End(Subprocess& process) {
  process.Signal(SIGTERM);
  process.Signal(SIGCONT);
}

void Supervisor::KillAll() {
  killed_ = true;
  for (Child& child : children_) {
    if (child.process) child.process->Signal(SIGKILL);
  }
}

// The last values are ours to evaluate: an evaluator that sees the end leaves, one that evaluates
// or still waits for an arena is ended.
void Supervisor::EndOthers() {
  const auto end = [this](const char* job) {
    for (Child& child : children_) {
      if (child.process && child.job == job) End(*child.process);
    }
  };
  end("ps");
  const Deadline deadline = Deadline::After(std::chrono::seconds(5));
  for (Child& child : children_) {
    if (child.process && child.job == "evaluator")
      (void)child.process->Reap(Deadline::After(kLook));
  }
  end("evaluator");
  for (Child& child : children_) {
    if (!child.process || child.job == "worker") continue;
    if (!child.process->Reap(deadline).ok()) {
      LogWarning("{} (process {}) does not end: killing it", child.Name(), child.process->pid());
    }
    child.process.reset();  // kills and reaps what is left
  }
}

}  // namespace passel::job
