#include "job/other_parts.h"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "cluster/json_message.h"
#include "job/remote_errand.h"
#include "job/remote_facts.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kReachLimit{5};
constexpr std::chrono::milliseconds kBetweenLooks{50};
constexpr std::size_t kMostAnswer = 4096;  // bytes

}  // namespace

bool EachPsWritesItsPart(const Task& task) {
  const Result<HostPort> lead = task.spec.Address({"ps", 0});
  for (int shard = 1; shard < task.spec.num_tasks("ps"); ++shard) {
    const Result<HostPort> other = task.spec.Address({"ps", shard});
    if (lead.ok() && other.ok() && lead->host != other->host) return true;
  }
  return false;
}

OtherParts::OtherParts(const Task& task) {
  for (int shard = 1; shard < task.spec.num_tasks("ps"); ++shard) {
    const Result<HostPort> address = task.spec.Address({"ps", shard});
    if (!address.ok()) continue;
    fabric::ControlOptions options;
    options.address = *address;
    options.peer_index = shard;
    options.key = DoorKeyOf(task);
    TakeLease(task, &options);
    options.me = FactsOf(task, Role::kPs, 0);
    others_.push_back({fmt::format("ps/{} at {}", shard, address->ToString()),
                       std::make_shared<fabric::ControlLine>(options), nullptr});
  }
}

Status OtherParts::OrderBegin(PartCopy how, std::uint64_t cohort) {
  begun_ = true;
  writing_ = false;
  return Order({{"ask", "save_begin"}, {"how", PartCopyName(how)}, {"cohort", cohort}}, {});
}

Status OtherParts::OrderWrite(const std::string& order, bool exact) {
  writing_ = true;
  return Order({{"ask", "save_write"}, {"exact", exact}}, order);
}

Status OtherParts::Order(const Json& question, std::string_view bytes) {
  for (Ps& ps : others_) {
    if (ps.pipe == nullptr) {
      PASSEL_ASSIGN_OR_RETURN(
          ps.pipe, ps.line->MakePipe(fabric::Purpose::kErrand, Deadline::After(kReachLimit)));
    }
    if (const Status sent = SendErrand(*ps.pipe, question, bytes); !sent.ok()) {
      ps.pipe.reset();
      return sent.WithContext(ps.name);
    }
  }
  return {};
}

Result<std::vector<Json>> OtherParts::Await(const Between& between, Deadline deadline) {
  std::vector<Json> answers;
  const auto await = [&](fabric::Pipe& pipe) -> Status {
    for (;;) {
      Result<Errand> answer = ReceiveErrand(pipe, kMostAnswer, deadline.Sooner(kBetweenLooks));
      PASSEL_RETURN_IF_ERROR(between());
      if (answer.ok()) {
        const Status said = ErrorOf(answer->json);
        // It has lost us in between; nobody has told this save to end.
        if (said.code() == Code::kCancelled) return Aborted(said.message());
        PASSEL_RETURN_IF_ERROR(said);
        answers.push_back(std::move(answer->json));
        return {};
      }
      if (answer.status().code() != Code::kDeadlineExceeded) return answer.status();
      if (deadline.Expired()) return DeadlineExceeded("it has not done its part of a save in time");
    }
  };
  for (Ps& ps : others_) {
    const Status status = ps.pipe ? await(*ps.pipe) : Unavailable("it was not asked");
    if (status.ok()) continue;
    for (Ps& other : others_) other.pipe.reset();  // answers may be under way
    if (status.code() == Code::kCancelled || status.message().starts_with(ps.name)) return status;
    return status.WithContext(ps.name);
  }
  if (writing_) begun_ = writing_ = false;
  return answers;
}

Result<std::vector<PartState>> OtherParts::AwaitStates(const Between& between, Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<Json> answers, Await(between, deadline));
  std::vector<PartState> states;
  for (const Json& answer : answers) {
    PartState state;
    PASSEL_ASSIGN_OR_RETURN(state.claimed, FieldOr<bool>(answer, "claimed", false));
    if (answer.Find("round") != nullptr) {
      PASSEL_ASSIGN_OR_RETURN(state.round, Field<std::uint64_t>(answer, "round"));
    }
    states.push_back(state);
  }
  return states;
}

// Pipes of their own: what was asked before is cancelled by them.
void OtherParts::TellAll(const char* what, Deadline deadline) {
  for (Ps& ps : others_) {
    ps.pipe.reset();
    Result<std::unique_ptr<fabric::Pipe>> pipe =
        ps.line->MakePipe(fabric::Purpose::kErrand, deadline.Sooner(kReachLimit));
    Status told = pipe.status();
    if (told.ok()) told = SendErrand(**pipe, {{"ask", what}});
    if (told.ok()) told = ReceiveErrand(**pipe, kMostAnswer, deadline).status();
    if (!told.ok()) LogDebug("{} has not heard {}: {}", ps.name, what, told.message());
  }
}

void OtherParts::Forget(Deadline deadline) {
  if (std::exchange(begun_, false)) TellAll("save_forget", deadline);
}

void OtherParts::Dismiss(Deadline deadline) { TellAll("save_over", deadline); }

}  // namespace passel::job
