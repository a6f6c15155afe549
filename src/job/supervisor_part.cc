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
// The same where that is of this host: it holds up all else here.
constexpr std::chrono::seconds kOwnStopLimit{1};
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
  if (exit.code == kExitRestartMe) failure_.clear();  // it was told to go
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
    lead_stopped_ = options_.part->HowItStopped(Deadline::After(kStopLimit));
    // The workers of a host end together, and each question holds up all else here.
    if (!lead_stopped_.ok()) ask_lead_at_ns_ = MonotonicNs() + kAskLeadAgainNs;
  }
  const Result<ClusterPart::Stop>& stop = lead_stopped_;
  if (stop.ok() ? !stop->stopped : exit.code != kExitInterrupted) return;
  if (stop.ok()) EndWithFailureOf(stop->failure);
  if (stopping_) return;
  stop_heard_ = true;
  StopOnRequest();
}

// The arena of ps/0 says that the job is to end.
void Supervisor::TakeStop() {
  if (options_.part != nullptr) {
    const Result<ClusterPart::Stop> stop =
        options_.part->HowItStopped(Deadline::After(kOwnStopLimit));
    if (stop.ok()) EndWithFailureOf(stop->failure);
    // A busy machine is asked again.
    if (stop.status().code() == Code::kDeadlineExceeded && --stop_asks_left_ > 0) return;
  }
  if (!stopping_) StopOnRequest();
}

// A task that we do not look after is why the job ends. "": none is.
void Supervisor::EndWithFailureOf(const std::string& another_host) {
  if (another_host.empty() || lead_told_ || (stopping_ && !stopped_on_request_)) return;
  stop_heard_ = lead_told_ = true;
  outcome_.notes.push_back(another_host);
  LogError("{}", another_host);
  if (stopping_ && outcome_.exit_code == kExitInterrupted) {  // it failed after a stop
    outcome_.exit_code = kExitFailed;
    outcome_.interrupted = false;
  }
  BeginStopping(kExitFailed, false);
}

// The job of several hosts, at ps/0: workers of all of them leave. ps/0 of this host knows of the
// failure before it is asked why the job ends.
void Supervisor::AskToStop(const std::string& failure) {
  if (asking_.joinable()) return;
  if (!failure.empty() && options_.part->HasLead() &&
      options_.part->StopJob(failure, Deadline::After(kOwnStopLimit)).ok()) {
    lead_told_ = true;
    return;
  }
  asking_ = std::thread([part = options_.part, failure] {
    const Status asked = part->StopJob(failure, Deadline::After(kStopLimit));
    if (!asked.ok()) LogWarning("the workers of other hosts are not told: {}", asked.message());
  });
}

}  // namespace passel::job
