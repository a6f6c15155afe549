// What a ps is asked for while its job trains: another mode, more workers or fewer, and the end.

#include <fmt/core.h>

#include <chrono>

#include "base/event_word.h"
#include "base/failpoint.h"
#include "base/nvtx.h"
#include "cluster/json_message.h"
#include "shm/ps_host.h"
#include "store/mode_change.h"
#include "store/scale.h"

namespace passel::shm {
namespace {

// Somebody who asks does so once a second (job/failure_watch.cc), if the machine lets him.
constexpr std::chrono::seconds kTellFailure{4};
// From the last word of a worker to the end of its process, as a rule.
constexpr std::chrono::seconds kHearFailure{1};

}  // namespace

Status PsHost::SetMode(const Peer&, Exchange& exchange) {
  PASSEL_ASSIGN_OR_RETURN(const std::string mode, exchange.Argument(std::string()));
  PASSEL_ASSIGN_OR_RETURN(const ModeSetting setting, ParseModeSetting(mode));
  if (options_.me.index != 0) {
    return FailedPrecondition(fmt::format(
        "the mode of a job is kept by ps/0, not by ps/{}: ask that", options_.me.index));
  }
  if (!arena_) {
    return FailedPrecondition(fmt::format(
        "the job is starting: the chief, {}, has not proposed its plan yet; try again in "
        "a moment",
        options_.names.chief_name));
  }
  PASSEL_RETURN_IF_ERROR(arena_->plan().CheckMode(setting));
  PASSEL_ASSIGN_OR_RETURN(const std::uint32_t number, WishForMode(arena_->memory(), setting));
  nvtx::Mark(nvtx::Event::kModeWished, number);
  Failpoint("ps.wished");
  exchange.answer["number"] = number;
  return {};
}

Status PsHost::Scale(const Peer&, Exchange& exchange) {
  PASSEL_ASSIGN_OR_RETURN(const std::int64_t workers, exchange.Argument(std::int64_t{0}));
  if (options_.alone) {
    return FailedPrecondition(
        "the job is one process without a ps, which is its one worker: start it with --ps 1");
  }
  if (!options_.supervised) {
    return FailedPrecondition(
        "the tasks of this job were started by hand, and nobody could start others: use passel "
        "task --join for one more worker, and kill -TERM for one less");
  }
  if (options_.me.index != 0) {
    return FailedPrecondition(fmt::format(
        "ps/0 is told how many workers a job is to have, not ps/{}: ask that", options_.me.index));
  }
  if (!arena_ || arena_->memory().state->initialized.load(std::memory_order_acquire) == 0) {
    return FailedPrecondition(
        "the job is starting, and its variables have no values yet: try again in a moment");
  }
  const int wanted = WantedWorkers(arena_->memory());
  if (!options_.fixed_workers.empty() && workers > 0 && workers != wanted) {
    return InvalidArgument(fmt::format(
        "this job keeps its {} workers and cannot have {}: {}; start it again with --workers {} "
        "(with --checkpoint_dir it goes on where it was)",
        wanted, workers, options_.fixed_workers, workers));
  }
  PASSEL_ASSIGN_OR_RETURN(const std::uint32_t number, WishForWorkers(arena_->memory(), workers));
  Failpoint("ps.scale_wished");
  exchange.answer["number"] = number;
  return {};
}

Status PsHost::Stop(const Peer&, Exchange& exchange) {
  PASSEL_ASSIGN_OR_RETURN(const std::string failure, exchange.Argument(std::string()));
  // What fails after a stop fails for it.
  if (!stop_asked_ && !failure.empty()) {
    failure_ = failure;
    tell_failure_until_ = Deadline::After(kTellFailure);
  }
  StopJob();
  return {};
}

// The job is over. Who looks after its tasks on another host may not have asked for it yet.
bool PsHost::StillTellsFailure() const {
  return tell_failure_until_ && !tell_failure_until_->Expired();
}

// A worker that has asked for the stop and failed then has left before whoever looks after it,
// maybe on another host, can say so.
bool PsHost::StillHearsOfFailure() {
  const bool by_worker = !stop_asked_ && Stopped();
  if (!options_.hears_of_failures || !by_worker || !failure_.empty()) return false;
  if (!hear_failure_until_) hear_failure_until_ = Deadline::After(kHearFailure);
  return !hear_failure_until_->Expired();
}

void PsHost::StopJob() {
  stop_asked_ = true;
  nvtx::Mark(nvtx::Event::kStopping, options_.me.index);
  if (!arena_) return;
  arena_->memory().state->stop.store(1, std::memory_order_seq_cst);
  Notify(arena_->memory().state->event);
}

}  // namespace passel::shm
