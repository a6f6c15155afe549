#include "job/remote_batches.h"

#include <random>
#include <utility>

#include "cluster/json_message.h"
#include "data/keyed_order.h"
#include "store/membership.h"

namespace passel::job {
namespace {

std::uint64_t NewSharing() {
  std::random_device random;
  return std::uint64_t{random()} << 20 | 1;  // never 0
}

}  // namespace

RemoteBatches::RemoteBatches(RemoteJob& job, const BatchRules& rules, std::uint64_t end,
                             std::function<void()> come_in)
    : job_(job), rules_(rules), end_(end), sharing_(NewSharing()), come_in_(std::move(come_in)) {}

Result<std::unique_ptr<RemoteBatches>> RemoteBatches::Create(RemoteJob& job,
                                                             const BatchRules& rules,
                                                             std::uint64_t end,
                                                             std::function<void()> come_in) {
  std::unique_ptr<RemoteBatches> batches(new RemoteBatches(job, rules, end, std::move(come_in)));
  const Status shares = batches->Ask(/*want=*/false).status();
  // A job that was stopped has no batches.
  if (!shares.ok() && shares.code() != Code::kCancelled) return shares;
  return batches;
}

Result<std::optional<std::uint64_t>> RemoteBatches::Next() {
  Result<std::optional<std::uint64_t>> next = Ask(/*want=*/true);
  if (next.status().code() == Code::kAborted) {
    // A ps that was started again, or one that had taken us for dead, may not know us yet.
    come_in_();
    next = Ask(/*want=*/true);
  }
  if (next.status().code() == Code::kCancelled) {
    held_by_.reset();
    return std::optional<std::uint64_t>();
  }
  return next;
}

void RemoteBatches::End() {
  if (done_) (void)job_.TellLead(Question(/*want=*/false));
}

Json RemoteBatches::Question(bool want) const {
  return {{"ask", "batch"},
          {"examples", rules_.examples},
          {"batch_size", rules_.batch_size},
          {"order", rules_.order},
          {"end", end_},
          {"sharing", sharing_},
          {"number", number_ + 1},
          {"want", want},
          {"done", done_}};
}

Result<std::optional<std::uint64_t>> RemoteBatches::Ask(bool want) {
  PASSEL_ASSIGN_OR_RETURN(const Errand answer, job_.AskLead(Question(want)));
  ++number_;
  done_ = false;
  held_by_.reset();
  if (answer.json.Find("held_by") != nullptr) {
    PASSEL_ASSIGN_OR_RETURN(held_by_, Field<int>(answer.json, "held_by"));
  }
  if (answer.json.Find("batch") == nullptr) return std::optional<std::uint64_t>();
  PASSEL_ASSIGN_OR_RETURN(const auto batch, Field<std::uint64_t>(answer.json, "batch"));
  return std::optional(batch);
}

Result<Json> RemoteSharing::Answer(int worker, const Json& question) {
  BatchRules rules;
  PASSEL_ASSIGN_OR_RETURN(rules.examples, Field<std::uint64_t>(question, "examples"));
  PASSEL_ASSIGN_OR_RETURN(rules.batch_size, Field<std::uint64_t>(question, "batch_size"));
  PASSEL_ASSIGN_OR_RETURN(rules.order, Field<std::uint64_t>(question, "order"));
  PASSEL_ASSIGN_OR_RETURN(const auto end, Field<std::uint64_t>(question, "end"));
  PASSEL_ASSIGN_OR_RETURN(const auto sharing, Field<std::uint64_t>(question, "sharing"));
  PASSEL_ASSIGN_OR_RETURN(const auto number, Field<std::uint64_t>(question, "number"));
  PASSEL_ASSIGN_OR_RETURN(const auto want, Field<bool>(question, "want"));
  PASSEL_ASSIGN_OR_RETURN(const auto done, Field<bool>(question, "done"));
  for (const std::uint64_t size : {rules.examples, rules.batch_size}) {
    if (size == 0 || size > KeyedOrder::kMost) return DataLoss("there are no such batches");
  }
  const TaskState state = StateOf(lead_, worker);
  if (state.phase != Phase::kRunning) {
    return Aborted("this worker was evicted: leave the job, and join it again");
  }
  Worker& of = workers_[worker];
  if (of.batches == nullptr || of.sharing != sharing || of.epoch != state.epoch) {
    PASSEL_ASSIGN_OR_RETURN(of.batches, SharedBatches::Create(lead_, worker, rules, end, names_));
    of.sharing = sharing;
    of.epoch = state.epoch;
    of.number = 0;
  }
  if (number == of.number) return of.answer;
  if (done) of.batches->Done();
  Json answer = {{"ok", true}};
  if (want) {
    PASSEL_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> next, of.batches->Next());
    if (next) {
      answer["batch"] = *next;
    } else if (const std::optional<int> by = of.batches->StillHeldBy()) {
      answer["held_by"] = *by;
    }
  }
  of.number = number;
  of.answer = answer;
  return answer;
}

}  // namespace passel::job
