#include "job/supervisor.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "job/exit_code.h"
#include "store/membership.h"

// What the end of a task means for the job, and which tasks are made to end.

namespace passel::job {
namespace {

constexpr int kMaxPsStarts = 100;
constexpr std::chrono::milliseconds kLastLines{100};
// Limits a chief that is killed again and again before it has written the first values.
constexpr int kMaxChiefStarts = 5;

// How a worker ended. One that a signal told to leave does so with an exit code.
std::string HowItEnded(const ExitState& exit) {
  if (exit.signalled || exit.code != kExitInterrupted) return exit.ToString();
  return "was ended by " + SignalName(SIGINT);
}

}  // namespace

void Supervisor::HandleExit(Child& child, const ExitState& exit) {
  output_->Settle(kLastLines);  // its own words come first
  if (child.job == "ps") {
    HandlePsExit(child, exit);
  } else if (child.job == "evaluator") {
    HandleEvaluatorExit(child, exit);
  } else {
    HandleWorkerExit(child, exit);
  }
}

void Supervisor::HandleWorkerExit(Child& child, const ExitState& exit) {
  FetchArenas();
  const bool done = !exit.signalled && exit.code == kExitDone;
  const bool stopped =  // see Run(); without the flag somebody has sent SIGINT to it alone
      !exit.signalled && exit.code == kExitInterrupted && StopFlag();
  child.end = stopping_ || stopped ? exit.ToString() : HowItEnded(exit);
  if (WasEvicted(child) && exit.signalled && exit.code == SIGKILL) {
    child.end =
        fmt::format("was evicted: it did not answer for {:g} s (--stall_limit) and was killed",
                    1e-9 * static_cast<double>(config_.stall_limit_ns));
  }
  any_worker_done_ |= done;
  const std::string why = ReadErrors(child);
  const bool failed = !exit.signalled && (exit.code == kExitUsage || exit.code == kExitFailed);
  const bool missing_chief = child.index == 0 && !Initialized();
  const bool again = !done && !stopping_ && !stopped && !failed && !child.gone &&
                     (child.starts <= options_.max_restarts ||
                      (missing_chief && exit.signalled && child.starts < kMaxChiefStarts));
  child.gone = !again;
  // It may have died before it could leave. After a clean end this changes nothing.
  MarkDeadEverywhere(child);
  if (done || stopping_ || stopped) return;
  nvtx::Mark(nvtx::Event::kTaskDied, child.index);
  std::string what = fmt::format("{} {}", child.Name(), child.end);
  if (!why.empty()) what += ": " + why;
  outcome_.notes.push_back(what);
  if (failed) {
    // The first to fail says why; the others fail for the same reason, or are told to stop.
    if (!why.empty()) LogError("{}", why);
    BeginStopping(exit.code, false);
    return;
  }
  if (!again && missing_chief) {
    LogError("{}; without the chief the variables get no first values: giving up", what);
    BeginStopping(kExitFailed, false);
    return;
  }
  LogWarning("{}{}", what,
             again                  ? "; starting it again"
             : AnyRunning("worker") ? "; the others go on"
                                    : "");
  if (!again) return;
  nvtx::Mark(nvtx::Event::kTaskRestarted, child.index);
  if (const Status status = StartChild(child); !status.ok()) {
    child.gone = true;
    outcome_.notes.push_back(status.message());
    LogError("{}", status.message());
    MarkDeadEverywhere(child);
    if (missing_chief) BeginStopping(kExitFailed, false);
  }
}

// This life of it, whoever comes to say so first: the one who killed it, or we.
bool Supervisor::WasEvicted(const Child& worker) const {
  if (arenas_.empty() || arenas_[0] == nullptr) return false;
  const TaskSlot& task = arenas_[0]->memory().tasks[worker.index];
  const std::uint32_t epoch = StateOf(arenas_[0]->memory(), worker.index).epoch;
  return epoch != 0 && task.evicted.load(std::memory_order_seq_cst) == epoch;
}

void Supervisor::HandlePsExit(Child& child, const ExitState& exit) {
  if (stopping_) return;
  if (!exit.signalled && exit.code == kExitUsage) {
    outcome_.notes.push_back(fmt::format("{} {}", child.Name(), exit.ToString()));
    BeginStopping(kExitUsage, false);
    return;
  }
  FetchArenas();  // what it had handed to us before it died
  nvtx::Mark(nvtx::Event::kTaskDied, child.index);
  const std::string what = fmt::format("{} {}", child.Name(), exit.ToString());
  outcome_.notes.push_back(what);
  if (child.starts >= kMaxPsStarts) {
    LogError("{}; it was started {} times: giving up", what, child.starts);
    BeginStopping(kExitFailed, false);
    return;
  }
  LogWarning("{}; starting it again{}", what,
             arenas_[static_cast<std::size_t>(child.index)] ? " on the same arena" : "");
  ++outcome_.ps_restarts;
  nvtx::Mark(nvtx::Event::kTaskRestarted, child.index);
  if (const Status status = StartChild(child); !status.ok()) {
    LogError("{}", status.message());
    BeginStopping(kExitFailed, false);
  }
}

void Supervisor::HandleEvaluatorExit(Child& child, const ExitState& exit) {
  child.gone = true;
  const bool done = !exit.signalled && (exit.code == kExitDone || exit.code == kExitInterrupted);
  if (done || killed_) return;
  const std::string why = ReadErrors(child);
  std::string what = fmt::format("{} {}", child.Name(), exit.ToString());
  if (!why.empty()) what += ": " + why;
  LogWarning("{}{}", what, stopping_ ? "" : "; training goes on without it");
  outcome_.notes.push_back(std::move(what));
}

// Why the last life of this task failed, in its own words.
std::string Supervisor::ReadErrors(Child& child) {
  std::string text(4096, '\0');
  const ssize_t got =
      child.errors.valid() ? ::read(child.errors.get(), text.data(), text.size()) : 0;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// The tasks have the same limit and know better whom they waited for: they come first.
void Supervisor::CheckStart() {
  if (start_limit_ns_ == 0 || MonotonicNs() < start_limit_ns_) return;
  start_limit_ns_ = 0;
  if (stopping_ || Initialized()) return;
  const std::string what = fmt::format(
      "the chief, worker/0, has not initialised the variables within {:g} s: look at "
      "the lines above, or raise --start_wait",
      1e-9 * static_cast<double>(config_.start_wait_ns));
  outcome_.notes.push_back(what);
  LogError("{}", what);
  BeginStopping(kExitFailed, false);
}

void Supervisor::KillStragglers() {
  const bool any_gone = std::any_of(children_.begin(), children_.end(),
                                    [](const Child& c) { return c.job == "worker" && c.gone; });
  if (!any_gone || stopping_ || config_.on_stall == OnStall::kWait) return;
  const TaskSlot* const tasks =
      arenas_.empty() || arenas_[0] == nullptr ? nullptr : arenas_[0]->memory().tasks;
  std::vector<int> left;
  for (const Child& child : children_) {
    if (child.job == "worker" && child.process && !child.gone) left.push_back(child.index);
  }
  for (const int worker : stragglers_.Look(tasks, left, any_worker_done_)) {
    Child& child = *std::ranges::find_if(
        children_, [&](const Child& c) { return c.job == "worker" && c.index == worker; });
    if (config_.on_stall == OnStall::kFail) {
      const Status why = KeepsFromEnding(child.Name(), child.process->pid(), config_);
      LogError("{}", why.message());
      outcome_.notes.push_back(why.message());
      BeginStopping(ExitCodeFor(why), false);
      return;
    }
    child.gone = true;
    LogWarning(
        "{} made no step for {:g} s after the first worker was {} (--stall_limit): killing it",
        child.Name(), 1e-9 * static_cast<double>(config_.stall_limit_ns),
        any_worker_done_ ? "done" : "gone");
    child.process->Signal(SIGKILL);
  }
}

// Nobody is left: what the ends of all workers make of the job.
void Supervisor::Conclude() {
  bool any_done = false;
  int lost = 0;
  for (const Child& child : children_) {
    if (child.job != "worker") continue;
    if (child.last_exit) {
      outcome_.worker_exits[static_cast<std::size_t>(child.index)] = child.end;
    }
    const bool done = child.last_exit && !child.last_exit->signalled && child.last_exit->code == 0;
    any_done |= done;
    lost += !done;
  }
  if (outcome_.exit_code == 0 && lost > 0 && !outcome_.interrupted) {
    if (any_done) {
      outcome_.notes.push_back(fmt::format("the job finished with {} of its {} workers",
                                           options_.workers - lost, options_.workers));
    } else {
      outcome_.exit_code = kExitFailed;
      outcome_.notes.emplace_back("no worker is left: training did not reach its last step");
    }
  }
}

}  // namespace passel::job
