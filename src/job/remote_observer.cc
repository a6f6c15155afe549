#include "job/remote_observer.h"

#include <fmt/core.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/json_message.h"
#include "cluster/patience.h"
#include "job/remote_facts.h"
#include "shm/layout.h"

namespace passel::job {
namespace {

constexpr std::chrono::milliseconds kWatchEvery{100};
constexpr std::chrono::seconds kWatchAnswerLimit{5};
// Of the values of one shard, beside the time that they travel.
constexpr std::chrono::seconds kWatchedCopyLimit{30};
// In the modes with rounds, for values of one round on all ps.
constexpr int kWatchedCopies = 20;

}  // namespace

Result<std::unique_ptr<WatchedJob>> RemoteObserver::AttachIfElsewhere(
    const Task& task, const RemoteJobOptions& options) {
  std::unique_ptr<RemoteObserver> observer(new RemoteObserver(task));
  PASSEL_ASSIGN_OR_RETURN(observer->job_, RemoteJob::ConnectIfElsewhere(task, options));
  if (observer->job_ == nullptr) return std::unique_ptr<WatchedJob>();
  LogInfo("{} is on another host than {}: it is sent copies of the values {}", task.id.ToString(),
          observer->job_->Elsewhere(), HowErrandsTravel(task));
  const std::string chief = task.Names().chief_name;
  Patience patience(Deadline::After(options.attach.start_wait), [&] {
    if (options.attach.on_waiting) options.attach.on_waiting(chief);
  });
  do {
    PASSEL_ASSIGN_OR_RETURN(const bool has_plan, observer->GetPlan());
    if (!has_plan) continue;
    PASSEL_RETURN_IF_ERROR(observer->LookNow());
    if (observer->seen_.initialized) return std::unique_ptr<WatchedJob>(std::move(observer));
    if (observer->Ended()) {
      return Unavailable("the job ended before its variables had values: look at the chief's log");
    }
  } while (patience.Again(kWatchEvery));
  return DeadlineExceeded(fmt::format(
      "the chief, {}, has not given job {} its first values within {:g} s: look at its log, or "
      "raise --start_wait",
      chief, task.job_id, ToSeconds(options.attach.start_wait)));
}

Result<bool> RemoteObserver::GetPlan() {
  const Result<Errand> answer = job_->AskPs(0, {{"ask", "read_plan"}}, shm::kMaxPlanBytes,
                                            Deadline::After(kWatchAnswerLimit));
  if (IsMissing(answer.status().code())) return false;
  PASSEL_RETURN_IF_ERROR(answer.status());
  if (answer->bytes.empty()) return false;
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan, PlanFromJson(answer->bytes));
  if (plan.variables.shards() != task_.spec.num_tasks("ps")) {
    return DataLoss(fmt::format("ps/0 of job {} holds a model on {} ps", task_.job_id,
                                plan.variables.shards()));
  }
  if (plan_ && plan_->Hash() != plan.Hash()) {
    return FailedPrecondition(fmt::format(
        "job {} was started anew with another model or other settings: start the evaluator anew",
        task_.job_id));
  }
  plan_ = std::move(plan);
  values_.resize(static_cast<std::size_t>(plan_->variables.shards()));
  return true;
}

Status RemoteObserver::Look() { return MonotonicNs() < next_look_ns_ ? Status() : LookNow(); }

Status RemoteObserver::LookNow() {
  const Result<Errand> answer =
      job_->AskPs(0, {{"ask", "watch"}}, 0, Deadline::After(kWatchAnswerLimit));
  next_look_ns_ = Deadline::After(kWatchEvery).at_ns();
  if (IsMissing(answer.status().code())) {
    if (missing_since_ns_ == 0) missing_since_ns_ = MonotonicNs();
    return {};
  }
  PASSEL_RETURN_IF_ERROR(answer.status());
  const bool back = std::exchange(missing_since_ns_, 0) != 0;
  if (back) PASSEL_RETURN_IF_ERROR(GetPlan().status());
  const Json& said = answer->json;
  Seen seen;
  PASSEL_ASSIGN_OR_RETURN(seen.initialized, Field<bool>(said, "initialized"));
  PASSEL_ASSIGN_OR_RETURN(seen.ended, Field<bool>(said, "ended"));
  PASSEL_ASSIGN_OR_RETURN(seen.done, Field<bool>(said, "done"));
  PASSEL_ASSIGN_OR_RETURN(seen.stopped, Field<bool>(said, "stopped"));
  PASSEL_ASSIGN_OR_RETURN(seen.global_step, Field<std::int64_t>(said, "global_step"));
  seen_ = seen;
  return {};
}

std::chrono::nanoseconds RemoteObserver::MissingFor() const {
  return std::chrono::nanoseconds(missing_since_ns_ == 0 ? 0 : MonotonicNs() - missing_since_ns_);
}

Result<WatchedJob::Copied> RemoteObserver::CopyValues() {
  const int shards = plan_->variables.shards();
  for (int tries = 1;; ++tries) {
    Copied copied;
    PASSEL_ASSIGN_OR_RETURN(const auto round, CopyShard(0, &copied));
    bool exact = round.has_value();
    for (int shard = 1; shard < shards; ++shard) {
      Copied ignored;
      PASSEL_ASSIGN_OR_RETURN(const auto other, CopyShard(shard, &ignored));
      exact = exact && other == round;
    }
    if (exact || shards == 1) return copied;
    // The other shards were copied after shard 0: how far training had come by then.
    PASSEL_RETURN_IF_ERROR(LookNow());
    copied.last_step = std::max(copied.last_step, seen_.global_step);
    if (!plan_->mode.traits().rounds || tries == kWatchedCopies) return copied;
  }
}

// Returns the round that it is exactly of.
Result<std::optional<std::uint64_t>> RemoteObserver::CopyShard(int shard, Copied* copied) {
  const std::size_t floats = plan_->variables.ShardFloats(shard);
  PASSEL_ASSIGN_OR_RETURN(Errand answer,
                          job_->AskPs(shard, {{"ask", "values"}}, floats * sizeof(float),
                                      Deadline::After(kWatchedCopyLimit)));
  if (answer.floats.size() != floats) {
    return Unavailable(
        fmt::format("ps/{} has {} values, and {} are expected: the job was begun "
                    "anew",
                    shard, answer.floats.size(), floats));
  }
  PASSEL_ASSIGN_OR_RETURN(copied->first_step, Field<std::int64_t>(answer.json, "global_step"));
  PASSEL_ASSIGN_OR_RETURN(copied->last_step, Field<std::int64_t>(answer.json, "last_global_step"));
  values_[static_cast<std::size_t>(shard)] = std::move(answer.floats);
  if (answer.json.Find("round") == nullptr) return std::optional<std::uint64_t>();
  copied->last_step = copied->first_step;
  PASSEL_ASSIGN_OR_RETURN(const auto round, Field<std::uint64_t>(answer.json, "round"));
  return std::optional(round);
}

Result<WatchedJob::Copied> RemoteObserver::CopyValuesAtOneStep(Deadline, MeetingCost*) {
  return FailedPrecondition("the workers wait for an evaluator of the host of ps/0 alone");
}

std::vector<const float*> RemoteObserver::values() const {
  std::vector<const float*> all;
  for (const std::vector<float>& shard : values_) all.push_back(shard.data());
  return all;
}

void RemoteObserver::TellScore(double accuracy, std::int64_t global_step) {
  const Result<Errand> told = job_->AskPs(0,
                                          {{"ask", "tell_score"},
                                           {"evaluator", task_.id.index},
                                           {"accuracy", accuracy},
                                           {"global_step", global_step}},
                                          0, Deadline::After(kWatchAnswerLimit));
  if (!told.ok()) LogDebug("a score: {}", told.status().message());
}

std::string RemoteObserver::DataJson() {
  const Result<Errand> answer = job_->AskPs(0, {{"ask", "read_data"}}, shm::kMaxPlanBytes,
                                            Deadline::After(kWatchAnswerLimit));
  return answer.ok() && !answer->bytes.empty() ? answer->bytes : "null";
}

}  // namespace passel::job
