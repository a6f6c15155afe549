#include "capi/reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "cluster/cluster_spec.h"
#include "job/find_job.h"

namespace passel::capi {
namespace {

// Until the job is looked for again, and how often its step is asked for: more seldom the longer
// that takes.
constexpr std::chrono::milliseconds kLookAgain{20};
constexpr std::chrono::microseconds kAskAgain{200}, kMostSeldom{10'000};

void PauseBefore(Deadline deadline, std::chrono::nanoseconds pause) {
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.Remaining()));
}

}  // namespace

Result<std::unique_ptr<Reader>> Reader::Attach(const std::string& job_id, Deadline deadline) {
  if (!job_id.empty()) PASSEL_RETURN_IF_ERROR(ValidateJobId(job_id));
  for (;;) {
    Result<std::string> job = job::ChooseJob(job_id);
    Result<StorePlan> plan = job.ok() ? shm::PlanOfJob(*job, shm::JobIs::kWanted, deadline)
                                      : Result<StorePlan>(job.status());
    if (plan.ok()) return std::unique_ptr<Reader>(new Reader(*std::move(job), *std::move(plan)));
    if (plan.status().code() != Code::kNotFound || deadline.Expired()) return plan.status();
    PauseBefore(deadline, kLookAgain);
  }
}

Status Reader::CheckVariable(std::size_t variable) const {
  if (variable < variables().size()) return {};
  return InvalidArgument(fmt::format("there is no variable {}: job {} has 0 to {}", variable, job_,
                                     variables().size() - 1));
}

Status Reader::Read(bool at_one_step, Deadline deadline) {
  Result<shm::Snapshot> snapshot =
      at_one_step ? shm::TakeConsistentSnapshot(job_, deadline) : shm::TakeSnapshot(job_, deadline);
  PASSEL_RETURN_IF_ERROR(snapshot.status());
  if (snapshot->plan().variables != plan_.variables) {
    return FailedPrecondition(
        fmt::format("job {} was begun anew with other variables: attach to it again", job_));
  }
  snapshot_.emplace(*std::move(snapshot));
  return {};
}

std::span<const float> Reader::Values(std::size_t variable) const {
  const VariableInfo& v = variables()[static_cast<VarId>(variable)];
  const float* const shard = snapshot_->shard_values()[static_cast<std::size_t>(v.shard)];
  return {shard + v.offset, v.elements};
}

Result<std::int64_t> Reader::WaitForStep(std::int64_t step, Deadline deadline) const {
  std::optional<std::int64_t> known;
  for (auto pause = kAskAgain;; pause = std::min(2 * pause, kMostSeldom)) {
    const Result<std::int64_t> asked = shm::StepOfJob(job_, shm::JobIs::kBegun, deadline);
    if (asked.status().code() == Code::kDeadlineExceeded && !known) {
      return DeadlineExceeded(fmt::format(
          "job {} does not answer: it has ended, or its ps is started again; wait again", job_));
    }
    if (asked.status().code() != Code::kDeadlineExceeded) {
      PASSEL_ASSIGN_OR_RETURN(known, asked);
    }
    if (*known >= step) return *known;
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format(
          "job {} is at global step {}, and not yet at {}: wait again, or look at its workers",
          job_, *known, step));
    }
    PauseBefore(deadline, pause);
  }
}

}  // namespace passel::capi
