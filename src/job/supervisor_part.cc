#include <chrono>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/log.h"
#include "job/exit_code.h"
#include "job/supervisor.h"

// The tasks of one host of a job on several: by hand, and ps/0 looks after the job.

namespace passel::job {
namespace {

// For ps/0 to hear that the job is to end.
constexpr std::chrono::seconds kStopLimit{3};
// Not sooner, once it has not answered.
constexpr std::int64_t kAskLeadAgainNs = 5'000'000'000;
}  // namespace

// The arena of ps/0, if that is of this host: what the job does is in there.
void Supervisor::FetchFromLead() {
  if (!options_.part->HasLead()) return;
  const Task& task = options_.part->task;
  fetcher_.reset();
  arenas_.clear();
  arenas_.resize(1);
  fetcher_ = std::make_unique<ArenaFetcher>(options_.job_id, 1, task.spec.Hash(), task.token,
                                            config_.start_wait_ns);
}

// Of a ps that was started by hand, and has said how the job ended. False: it has died.
bool Supervisor::HandlePsOfPart(Child& child, const ExitState& exit) {
  if (exit.signalled) return false;
  child.gone = true;
  if (exit.code == kExitDone) return true;
  if (exit.code == kExitInterrupted) {
    StopOnRequest();
    return true;
  }
  AddDeath(child, exit, exit.ToString());
  if (exit.code != kExitFailed && exit.code != kExitUsage && exit.code != kExitRestartMe) {
    LogError("{} {}", child.Name(), exit.ToString());  // the others say why
  }
  BeginStopping(exit.code == kExitUsage || exit.code == kExitRestartMe ? exit.code : kExitFailed,
                false);
  return true;
}

// A worker that ended may have heard before us that the job was stopped: it is not to begin anew.
// Where ps/0 is over, too, or cannot say it any more, the code of a worker that was told to leave
// says enough.
void Supervisor::TakeStopFromLead(const ExitState& exit) {
  if (options_.part == nullptr || options_.part->HasLead() || stopping_) return;
  if (exit.signalled || RuleFor(exit).worker != AfterExit::kAgain) return;
  if (MonotonicNs() >= ask_lead_at_ns_) {
    lead_stopped_ = options_.part->WasStopped(Deadline::After(kStopLimit));
    // The workers of a host end together, and each question holds up all else here.
    if (!lead_stopped_.ok()) ask_lead_at_ns_ = MonotonicNs() + kAskLeadAgainNs;
  }
  const Result<bool>& stopped = lead_stopped_;
  if (stopped.ok() ? !*stopped : exit.code != kExitInterrupted) return;
  stop_heard_ = true;
  StopOnRequest();
}

// The job of several hosts, at ps/0: workers of all of them leave.
void Supervisor::AskToStop() {
  if (asking_.joinable()) return;
  asking_ = std::thread([part = options_.part] {
    const Status asked = part->StopJob(Deadline::After(kStopLimit));
    if (!asked.ok()) LogWarning("the workers of other hosts are not told: {}", asked.message());
  });
}

}  // namespace passel::job
