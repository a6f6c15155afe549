#include "job/supervisor.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "job/exit_code.h"
#include "job/grace.h"
#include "store/membership.h"

// The wish to end, from whom it comes, and how it reaches the tasks.

namespace passel::job {
namespace {

// Within which an evaluator that has nothing to do sees that the job has ended.
constexpr std::chrono::milliseconds kLook{500};
// From SIGTERM to SIGKILL for those that nobody waits for.
constexpr std::chrono::seconds kOthersPatience{5};
// The kernel gets this at least for the end of a process that was killed.
constexpr std::chrono::seconds kLeastKillPatience{1};

// "state D": it waits in the kernel, for a disk or a driver.
std::string StateInWords(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = stat.rfind(") ");
  return end == std::string::npos || end + 2 >= stat.size()
             ? "state unknown"
             : fmt::format("state {}", stat[end + 2]);
}

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

void Supervisor::StopOnRequest() {
  outcome_.notes.emplace_back("the job was stopped on request");
  stopped_on_request_ = true;
  BeginStopping(kExitInterrupted, true);
}

void Supervisor::BeginStopping(int exit_code, bool interrupted) {
  const std::int64_t end_ns = MonotonicNs() + static_cast<std::int64_t>(options_.grace * 1e9);
  const std::int64_t results_ns = GraceForResults(options_.grace).count();
  if (!stopping_) {
    nvtx::Mark(nvtx::Event::kStopping, exit_code);
    stopping_ = true;
    kill_at_ns_ = end_ns - results_ns;
  }
  if (exit_code == kExitRestartMe && !outcome_.end_by) {
    outcome_.end_by = Deadline::At(end_ns - results_ns / 4);  // what is left then is for the files
  }
  // A failure after a wish to end does not change the answer to the wish, and the other way round.
  if (outcome_.exit_code == 0) outcome_.exit_code = exit_code;
  outcome_.interrupted |= interrupted;
  if (options_.part != nullptr && !StopFlag()) AskToStop(interrupted ? std::string() : failure_);
  if (!arenas_.empty() && arenas_[0]) SetStopFlag();
  for (Child& child : children_) {
    if (child.start_at_ns != 0) {  // it will not come back
      child.start_at_ns = 0;
      child.gone = true;
      if (child.job == "worker") MarkDeadEverywhere(child);
    }
    if (child.job == "worker" && child.process) End(*child.process);
    // One that waits for a job to begin does not hear of its end. ps/0 that is told of a failure
    // ends when the other hosts have heard of it.
    const bool told = lead_told_ && !interrupted && child.index == 0;
    if (child.job == "ps" && child.process && options_.part != nullptr &&
        options_.part->HasLead() && !HaveArenas() && !told) {
      child.process->Signal(SIGINT);
    }
  }
}

void Supervisor::SetStopFlag() {
  arenas_[0]->memory().state->stop.store(1, std::memory_order_seq_cst);
  Notify(arenas_[0]->memory().state->event);
}

bool Supervisor::StopFlag() const {
  return stop_heard_ || (!arenas_.empty() && arenas_[0] &&
                         arenas_[0]->memory().state->stop.load(std::memory_order_seq_cst) != 0);
}

// A process that somebody stopped would not notice.
void Supervisor::End(Subprocess& process) {
  process.Signal(SIGTERM);
  process.Signal(SIGCONT);
}

void Supervisor::LookAtTheClock() {
  const std::int64_t now = MonotonicNs();
  if (stopping_ && !killed_ && now >= kill_at_ns_) {
    outcome_.notes.push_back(
        fmt::format("tasks that had not ended {:g} s before the end of --grace {:g} were killed",
                    ToSeconds(GraceForResults(options_.grace)), options_.grace));
    KillAll();
  }
  if (!killed_ || now < leave_at_ns_) return;
  for (Child& child : children_) {
    if (child.process) LeaveBehind(child, Deadline::At(now));
  }
}

// A process that waits in the kernel cannot be killed, and nobody knows for how long.
void Supervisor::LeaveBehind(Child& child, Deadline deadline) {
  const Result<ExitState> exit = child.process->Reap(deadline);
  child.last_exit = exit.ok() ? *exit : ExitState{true, SIGKILL};
  child.end = child.last_exit->ToString();
  if (!exit.ok()) {
    const pid_t pid = child.process->pid();
    child.end = "was left behind";
    outcome_.notes.push_back(
        fmt::format("{} (process {}, {}) did not end after SIGKILL and was left behind",
                    child.Name(), pid, StateInWords(pid)));
    LogWarning("{}", outcome_.notes.back());
    child.process->Abandon();
  }
  child.process.reset();
}

// Until when to wait for those that were killed.
Deadline Supervisor::AfterKilling() const {
  if (!outcome_.end_by) return Deadline::After(kKillPatience);
  const std::chrono::nanoseconds half = GraceForResults(options_.grace) / 2;
  return Deadline::After(std::max<std::chrono::nanoseconds>(kLeastKillPatience, half));
}

void Supervisor::KillAll() {
  if (!killed_) leave_at_ns_ = AfterKilling().at_ns();
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
  Deadline deadline = Deadline::After(kOthersPatience);
  if (outcome_.end_by) deadline = outcome_.end_by->Sooner(kOthersPatience);
  for (Child& child : children_) {
    if (child.process && child.job == "evaluator")
      (void)child.process->Reap(deadline.Sooner(kLook));
  }
  end("evaluator");
  for (Child& child : children_) {
    if (!child.process || child.process->Reap(deadline).ok()) continue;
    LogWarning("{} (process {}) does not end: killing it", child.Name(), child.process->pid());
    child.process->Signal(SIGKILL);
  }
  deadline = AfterKilling();
  for (Child& child : children_) {
    if (child.process) LeaveBehind(child, deadline);
  }
}

}  // namespace passel::job
