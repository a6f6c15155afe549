#include "fabric/remote_lead.h"

#include <fmt/core.h>

#include "fabric/remote_shard.h"

namespace passel::fabric {

Status RemoteLead::Leave(Phase end) {
  return worker_->Step(0, Kind::kLeave, static_cast<std::uint64_t>(end)).status();
}

void RemoteLead::SayAlive() { (void)worker_->QuickOrNot(0, Call(Kind::kSayAlive)); }

void RemoteLead::Stop() {
  worker_->Stop();  // whatever becomes of this request
  (void)worker_->QuickOrNot(0, Call(Kind::kStop));
}

std::vector<Member> RemoteLead::membership() const {
  return worker_->QuickMembers(0, Call(Kind::kMembers));
}

std::vector<Member> RemoteLead::Missing(WaitingOn what, std::uint64_t number) const {
  Call call(Kind::kMissing, number);
  call.request.slot = static_cast<std::int32_t>(what);
  return worker_->QuickMembers(0, std::move(call));
}

Status RemoteLead::Restore(const JobProgress& progress) {
  auto call = std::make_unique<Call>(Kind::kRestore);
  call->request.progress = progress;
  return worker_->Step(0, std::move(call)).status();
}

Status RemoteLead::CountUpdate(std::int64_t* global_step) {
  if (!worker_->counted) {
    auto call = std::make_unique<Call>(Kind::kCount);
    if (bounded_) call->request.flags = kSlowest;
    worker_->near_enough_next = false;
    PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->Step(0, std::move(call)));
    worker_->counted = answer.step;
    worker_->near_enough = answer.yes;
    worker_->near_enough_next = answer.number != 0;
  }
  *global_step = *worker_->counted;
  worker_->counted.reset();
  return {};
}

Status RemoteLead::AwaitSlowest(Deadline deadline) {
  if (worker_->near_enough) {
    worker_->near_enough = false;
    return {};
  }
  auto call = std::make_unique<Call>(Kind::kAwaitSlowest);
  call->deadline = deadline;
  if (worker_->reaches_the_lead_alone()) worker_->shards[0]->AskForValues(call.get());
  PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->Step(0, std::move(call)));
  worker_->near_enough_next = answer.number != 0;
  if (answer.values) {
    worker_->shards[0]->TakeValues(answer, 0);
  } else {
    worker_->DropValues();  // they were read before the wait
  }
  return {};
}

Result<bool> RemoteLead::RoundDecided(std::uint64_t round) const {
  PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->Step(0, Kind::kDecided, round));
  return answer.yes;
}

void RemoteLead::BeginRound(std::uint64_t round, std::uint16_t flags) {
  auto call = std::make_unique<Call>(Kind::kRound, round);
  // AwaitRound() has one of its own.
  if (flags & kAwait) call->deadline = Deadline::After(std::chrono::hours(24));
  call->request.flags = flags;
  if (flags & kStageIt) call->bulk = worker_->shards[0]->staged_gradient();
  if (flags & kApply) worker_->shards[0]->AskForValues(call.get());
  worker_->Begin(0, std::move(call));
}

Status RemoteLead::Arrive(std::uint64_t round) {
  PASSEL_RETURN_IF_ERROR(worker_->EndStages());
  worker_->arriving = round;
  if (!worker_->one_shard()) {
    BeginRound(round, worker_->reaches_the_lead_alone() ? kStageIt | kArrive : kArrive);
    return worker_->End(0).status();
  }
  BeginRound(round, kStageIt | kArrive | kAwait | kApply);
  // In hand: it has arrived.
  const Status arrived = worker_->session(0).Await(
      worker_->under_way(0), Deadline::After(worker_->options.answer_limit), true);
  // What else went wrong after the arrival AwaitRound() says.
  if (arrived.ok() || arrived.code() == Code::kCancelled) return {};
  worker_->GiveUp(0);
  return arrived;
}

Result<RoundGrant> RemoteLead::AwaitRound(std::uint64_t round, Deadline deadline) {
  if (!worker_->one_shard()) {
    auto call = std::make_unique<Call>(Kind::kRound, round);
    call->deadline = deadline;
    // Arrives again: ps/0 may have come back meanwhile, and another life of this worker with it.
    call->request.flags = kAwait | (worker_->arriving == round ? kArrive : 0);
    PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->Step(0, std::move(call)));
    return answer.grant.value_or(RoundGrant{});
  }
  Call* call = worker_->under_way(0);
  if (call == nullptr || call->request.kind != Kind::kRound || call->request.number != round) {
    BeginRound(round, kAwait | kApply);
    call = worker_->under_way(0);
  }
  const Status status = worker_->session(0).Await(call, deadline);
  if (!status.ok() && !call->finished) {
    if (status.code() != Code::kDeadlineExceeded && status.code() != Code::kUnavailable) {
      return status;
    }
    return DeadlineExceeded(fmt::format("round {} is not complete: {}", round, status.message()));
  }
  PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->End(0));
  if (answer.values) worker_->shards[0]->TakeValues(answer, answer.state.completed_round);
  return answer.grant.value_or(RoundGrant{});
}

Status RemoteLead::FinishRound(const RoundGrant& grant) {
  if (grant.count == 0 || completed_round() >= grant.round) return {};
  auto call = std::make_unique<Call>(Kind::kFinishRound);
  call->request.grant = grant;
  return worker_->Step(0, std::move(call)).status();
}

bool RemoteLead::AwaitCompletion(std::uint64_t round, Deadline deadline) {
  if (completed_round() >= round) return true;
  const Result<Answer> answer = worker_->Step(0, Kind::kAwaitCompletion, round, deadline);
  return answer.ok() && answer->yes;
}

Status RemoteLead::DecideNoMore() { return worker_->Step(0, Kind::kDecideNoMore).status(); }

Result<std::optional<std::uint64_t>> RemoteLead::AwaitChange(Deadline deadline) {
  PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->Step(0, Kind::kAwaitChange, 0, deadline));
  return answer.yes ? std::optional(answer.number) : std::nullopt;
}

Status RemoteLead::PublishChange() { return worker_->Step(0, Kind::kPublishChange).status(); }

Status RemoteLead::EnterMode(const ModeWord& mode) {
  PASSEL_RETURN_IF_ERROR(worker_->EnterMode(0, mode));
  bounded_ = Has<&ModeTraits::bounded>(mode.setting.mode);
  worker_->near_enough_next = false;
  worker_->arriving = 0;
  return {};
}

}  // namespace passel::fabric
