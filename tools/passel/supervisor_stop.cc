#include "tools/passel/supervisor.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "tools/passel/exit_code.h"

// The wish to end, from whom it comes, and how it reaches the tasks.

namespace passel {
namespace {

constexpr std::chrono::seconds kLastEvaluationLimit{30};
constexpr int kEvaluatorLookMs = 250;

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

void Supervisor::EndPs() {
  for (Child& child : children_) {
    if (child.process && child.job == "ps") End(*child.process);
  }
  const Deadline deadline = Deadline::After(std::chrono::seconds(5));
  for (Child& child : children_) {
    if (!child.process || child.job != "ps") continue;
    if (!child.process->Reap(deadline).ok()) {
      LogWarning("{} (process {}) does not end: killing it", child.Name(), child.process->pid());
    }
    child.process.reset();  // kills and reaps what is left
  }
}

// It sees that everyone has ended and evaluates once more.
void Supervisor::AwaitEvaluator() {
  const Deadline deadline = Deadline::After(kLastEvaluationLimit);
  for (Child& child : children_) {
    if (!child.process || child.job != "evaluator") continue;
    if (killed_ || !Initialized()) {  // there is nothing to evaluate
      child.process.reset();
      continue;
    }
    // Of those that died nobody comes back.
    if (std::any_of(children_.begin(), children_.end(), [](const Child& c) {
          return c.job == "worker" && c.last_exit && (c.last_exit->signalled || c.last_exit->code);
        })) {
      SetStopFlag();
    }
    std::optional<ExitState> exit;
    int hurry = 0;
    while (!exit && hurry == 0 && !deadline.Expired()) {
      pollfd entries[] = {{signals_.fd(), POLLIN, 0}, {child.process->pidfd(), POLLIN, 0}};
      ::poll(entries, 2, deadline.PollTimeoutMs(kEvaluatorLookMs));
      hurry = signals_.Next();
      exit = child.process->TryReap();
    }
    if (hurry != 0) {
      outcome_.interrupted = true;
      if (outcome_.exit_code == 0) {
        outcome_.exit_code = hurry == SIGINT ? kExitInterrupted : kExitRestartMe;
      }
    }
    if (exit) {
      HandleEvaluatorExit(child, *exit);
    } else {
      outcome_.notes.push_back(child.Name() + " was killed before its last evaluation");
      LogWarning("{}", outcome_.notes.back());
    }
    child.process.reset();  // kills and reaps what is left
  }
}

}  // namespace passel
