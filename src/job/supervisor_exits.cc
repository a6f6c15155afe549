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

constexpr std::chrono::milliseconds kLastLines{100};
// Whom the job cannot do without, a ps, or the chief until it has written the first values, is
// started again so often at least, whatever --max_restarts says.
constexpr int kLeastRestarts = 6;
// Of a cause with the words of the task itself.
constexpr std::size_t kMostCauseBytes = 1000;

// How a worker ended. One that a signal told to leave does so with an exit code.
std::string HowItEnded(const ExitState& exit) {
  if (exit.signalled || exit.code != kExitInterrupted) return exit.ToString();
  return "was ended by " + SignalName(SIGINT);
}

// By a code of ours that a task ends with after a line of level E.
bool SaysWhy(const ExitState& exit) {
  return !exit.signalled && (exit.code == kExitFailed || exit.code == kExitUsage);
}

// " in 0.4 s"; nothing for at once.
std::string InWhatTime(std::int64_t at_ns) {
  const std::int64_t left = at_ns - MonotonicNs();
  return left <= 0 ? "" : fmt::format(" in {:.1f} s", 1e-9 * static_cast<double>(left));
}

}  // namespace

void Supervisor::HandleExit(Child& child, const ExitState& exit) {
  // Its own words come first.
  output_->Settle(IndexOf(child), stopping_ ? std::min<std::chrono::nanoseconds>(
                                                  kLastLines, Deadline::At(kill_at_ns_).Remaining())
                                            : kLastLines);
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
  TakeStopFromLead(exit);
  const bool done = !exit.signalled && exit.code == kExitDone;
  const bool stopped =  // see Run(); without the flag somebody has sent SIGINT to it alone
      !exit.signalled && exit.code == kExitInterrupted && StopFlag();
  child.end = stopping_ || stopped ? exit.ToString() : HowItEnded(exit);
  if (exit.signalled && exit.code == SIGKILL && !killed_) {
    if (child.stalled || WasEvicted(child)) {
      child.end =
          fmt::format("was evicted: it did not answer for {:g} s (--stall_limit) and was killed",
                      1e-9 * static_cast<double>(config_.stall_limit_ns));
    } else {
      child.end += oom_.Explain();
    }
  }
  // By the signal of BeginStopping(). On another host than ps/0 nobody knows its steps.
  child.too_late = stopping_ && stopped_on_request_ && !killed_ && IsProgram(child) &&
                   options_.part == nullptr && exit.signalled && exit.code == SIGTERM &&
                   child.steps_before == 0 && !MadeProgress(child);
  if (child.too_late) child.end = "was ended before its first step";
  const std::string why = ReadErrors(child);
  ExitRule rule = RuleFor(exit);
  if (IsProgram(child) && rule.worker == AfterExit::kGone) rule.worker = AfterExit::kEndsJob;
  // SIGTERM itself ends one that is about to begin.
  // A program may say with any code that its loop was ended.
  const bool in_order =
      exit.signalled ? exit.code == SIGTERM : IsProgram(child) || rule.worker == AfterExit::kAgain;
  if (!child.wanted && !stopping_ && in_order) {
    HandleLeaving(child);
    return;
  }
  any_worker_done_ |= done;
  if (done && IsProgram(child) && options_.part == nullptr && child.index == 0 && !Initialized()) {
    chief_ended_ = true;
  }
  const bool missing_chief = options_.part == nullptr && child.index == 0 && !Initialized();
  const int most = missing_chief && exit.signalled ? std::max(options_.max_restarts, kLeastRestarts)
                                                   : options_.max_restarts;
  const bool given_up = child.gone;  // it was killed, since the others were done
  const bool again = rule.worker == AfterExit::kAgain && !stopping_ && !stopped && !given_up &&
                     child.wanted && PlanRestart(child, most);
  child.gone = !again && child.wanted;  // whom nobody wants any more nobody misses
  // It may have died before it could leave. After a clean end this changes nothing.
  MarkDeadEverywhere(child);
  if (stopping_ && stopped_on_request_ && IsProgram(child) && !killed_ &&
      rule.worker == AfterExit::kEndsJob) {
    FailAfterStop(child, exit, rule.job_code);
  }
  if (done || stopping_ || stopped) return;
  nvtx::Mark(nvtx::Event::kTaskDied, child.index);
  const std::string cause = why.empty() ? child.end : child.end + ": " + why;
  const std::string what = child.Name() + " " + cause;
  AddDeath(child, exit, cause);
  if (rule.worker == AfterExit::kEndsJob) {
    outcome_.lives.LastDeathEndedJob();
    // The first to fail says why; the others fail for the same reason, or are told to stop.
    const bool first = outcome_.lives.num_deaths() == 1;
    if (!why.empty()) {
      LogError("{}{}", why, first ? "" : AfterFirstDeath());
    } else if (IsProgram(child) || !SaysWhy(exit)) {
      LogError("{}{}", what, first ? "" : AfterFirstDeath());
    }
    BeginStopping(rule.job_code, false);
    return;
  }
  if (!again && missing_chief) {
    outcome_.lives.LastDeathEndedJob();
    LogError("{}; without the chief the variables get no first values: giving up{}", what,
             AfterFirstDeath());
    BeginStopping(kExitFailed, false);
    return;
  }
  if (!again && IsProgram(child) && child.wanted) {
    outcome_.lives.LastDeathEndedJob();
    if (given_up) {
      LogError("{}: giving up{}", what, AfterFirstDeath());
    } else {
      LogError("{}; --max_restarts {} is used up: giving up{}", what, most, AfterFirstDeath());
    }
    BeginStopping(kExitFailed, false);
    return;
  }
  const std::string used_up =
      options_.max_restarts > 0 && child.wanted && rule.worker == AfterExit::kAgain
          ? fmt::format(" (--max_restarts {} is used up)", most)
          : "";
  LogWarning("{}{}", what,
             again               ? "; starting it again" + InWhatTime(child.start_at_ns)
             : AnyLeft("worker") ? "; the others go on" + used_up
                                 : used_up);
  failure_.clear();  // the job goes on
  StartThoseWhoseTimeHasCome();
}

// A stop is no reason to fail: that of a program that asks for it and raises then has failed.
void Supervisor::FailAfterStop(const Child& child, const ExitState& exit, int job_code) {
  const std::string after = AfterFirstDeath();
  AddDeath(child, exit, child.end);
  outcome_.lives.LastDeathEndedJob();
  LogError("{} {} after the job was stopped{}", child.Name(), child.end, after);
  if (outcome_.exit_code == kExitInterrupted) outcome_.exit_code = job_code;
  outcome_.interrupted = false;
  if (options_.part != nullptr) AskToStop(failure_);
}

// Before its next life, in which its last lines are others.
void Supervisor::AddDeath(const Child& child, const ExitState& exit, const std::string& cause) {
  outcome_.lives.Add(TaskDeath{child.Name(), child.starts, SinceStart(),
                               cause.substr(0, kMostCauseBytes), exit,
                               output_->LastLines(IndexOf(child))});
  if (options_.part != nullptr) failure_ = options_.part->FailureOf(child.id, exit.ToString());
}

// For the last line of a job that fails, which is not always about its first misfortune.
std::string Supervisor::AfterFirstDeath() const {
  const std::string first = outcome_.lives.FirstDeath();
  return first.empty() ? "" : "; " + first;
}

// False: no restart is left.
bool Supervisor::PlanRestart(Child& child, int most) {
  const std::int64_t now = MonotonicNs();
  const std::optional<std::int64_t> at = child.restarts->Next(now, MadeProgress(child), most);
  child.start_at_ns = at.value_or(0);
  return at.has_value();
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
  if (options_.part != nullptr && HandlePsOfPart(child, exit)) return;
  FetchArenas();  // what it had handed to us before it died
  nvtx::Mark(nvtx::Event::kTaskDied, child.index);
  std::string cause = exit.ToString();
  if (exit.signalled && exit.code == SIGKILL) cause += oom_.Explain();
  const std::string what = child.Name() + " " + cause;
  AddDeath(child, exit, cause);
  const ExitRule& rule = RuleFor(exit);
  if (rule.ps == AfterExit::kEndsJob) {
    outcome_.lives.LastDeathEndedJob();
    if (!SaysWhy(exit)) LogError("{}", what);
    BeginStopping(rule.job_code, false);
    return;
  }
  if (!PlanRestart(child, std::max(options_.max_restarts, kLeastRestarts))) {
    outcome_.lives.LastDeathEndedJob();
    LogError("{}; {} times in a row it has ended within a second of its start: giving up{}", what,
             child.restarts->used() + 1, AfterFirstDeath());
    BeginStopping(kExitFailed, false);
    return;
  }
  LogWarning("{}; starting it again{}{}", what,
             options_.part == nullptr && arenas_[static_cast<std::size_t>(child.index)]
                 ? " on the same arena"
                 : "",
             InWhatTime(child.start_at_ns));
  failure_.clear();  // the job goes on
  StartThoseWhoseTimeHasCome();
}

void Supervisor::HandleEvaluatorExit(Child& child, const ExitState& exit) {
  child.gone = true;
  const bool done = !exit.signalled && (exit.code == kExitDone || exit.code == kExitInterrupted);
  if (done || killed_) return;
  const std::string why = ReadErrors(child);
  std::string cause = exit.ToString();
  if (!why.empty()) cause += ": " + why;
  LogWarning("{} {}{}", child.Name(), cause, stopping_ ? "" : "; training goes on without it");
  AddDeath(child, exit, cause);
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
  LogError("{}{}", what, AfterFirstDeath());
  BeginStopping(kExitFailed, false);
}

void Supervisor::KillStragglers() {
  const bool any_gone = std::any_of(children_.begin(), children_.end(),
                                    [](const Child& c) { return c.job == "worker" && c.gone; });
  if (!any_gone || stopping_ || config_.on_stall == OnStall::kWait) return;
  if (options_.part != nullptr) return;  // ps/0 does it
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
      LogError("{}{}", why.message(), AfterFirstDeath());
      outcome_.notes.push_back(why.message());
      BeginStopping(ExitCodeFor(why), false);
      return;
    }
    child.gone = true;
    child.stalled = true;
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
  int wanted = 0, lost = 0;
  for (const Child& child : children_) {
    if (child.job != "worker") continue;
    wanted += child.wanted;
    if (child.last_exit) {
      outcome_.worker_exits[static_cast<std::size_t>(child.index)] = child.end;
    }
    const bool done = child.last_exit && !child.last_exit->signalled && child.last_exit->code == 0;
    any_done |= done;
    lost += child.wanted && !done && !child.too_late;
  }
  // A program that stops its own job, and ends well, is done.
  if (!options_.program.empty() && stopped_on_request_ && any_done && lost == 0 &&
      outcome_.exit_code == kExitInterrupted) {
    outcome_.exit_code = kExitDone;
    outcome_.interrupted = false;
  }
  if (outcome_.exit_code == 0 && lost > 0 && !outcome_.interrupted) {
    if (any_done) {
      outcome_.notes.push_back(
          fmt::format("the job finished with {} of its {} workers", wanted - lost, wanted));
    } else {
      outcome_.exit_code = kExitFailed;
      outcome_.notes.emplace_back("no worker is left: training did not reach its last step");
      LogError("{}{}", outcome_.notes.back(), AfterFirstDeath());
    }
  }
}

}  // namespace passel::job
