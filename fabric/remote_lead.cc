#include "fabric/remote_lead.h"

#include <fmt/core.h>

#include "fabric/remote_shard.h"

namespace passel::fabric {
namespace {

std::unique_ptr<Call> Asking(Kind kind, std::uint64_t number = 0) {
  auto call = std::make_unique<Call>();
  call->request.kind = kind;
  call->request.number = number;
  return call;
}

}  // namespace

RemoteLead::~RemoteLead() {
  if (worker_->round != nullptr) worker_->session(0).Drop(worker_->round.get());
}

Status RemoteLead::Leave(Phase end) {
  return worker_->Step(0, Asking(Kind::kLeave, static_cast<std::uint64_t>(end)).get());
}

void RemoteLead::SayAlive() { (void)worker_->Quick(0, Asking(Kind::kSayAlive).get()); }

void RemoteLead::Stop() { (void)worker_->Quick(0, Asking(Kind::kStop).get()); }

std::vector<Member> RemoteLead::membership() const {
  const auto call = Asking(Kind::kMembers);
  (void)worker_->Quick(0, call.get());
  return call->answer.members;
}

std::vector<Member> RemoteLead::Missing(WaitingOn what, std::uint64_t number) const {
  const auto call = Asking(Kind::kMissing, number);
  call->request.slot = static_cast<std::int32_t>(what);
  (void)worker_->Quick(0, call.get());
  return call->answer.members;
}

Status RemoteLead::Restore(const JobProgress& progress) {
  const auto call = Asking(Kind::kRestore);
  call->request.progress = progress;
  return worker_->Step(0, call.get());
}

Status RemoteLead::CountUpdate(std::int64_t* global_step) {
  if (worker_->counted) {
    *global_step = *worker_->counted;
    worker_->counted.reset();
    return {};
  }
  const auto call = Asking(Kind::kCount);
  PASSEL_RETURN_IF_ERROR(worker_->Step(0, call.get()));
  *global_step = call->answer.step;
  return {};
}

Status RemoteLead::AwaitSlowest(Deadline deadline) {
  if (worker_->near_enough) {
    worker_->near_enough = false;
    return {};
  }
  const auto call = Asking(Kind::kAwaitSlowest);
  if (worker_->one_shard()) {
    call->request.flags = kValues;
    call->into = worker_->only_shard->next_values();
  }
  PASSEL_RETURN_IF_ERROR(worker_->Step(0, call.get(), deadline));
  if (call->answer.values) worker_->only_shard->TakeValues(call->answer, 0);
  return {};
}

Result<bool> RemoteLead::RoundDecided(std::uint64_t round) const {
  const auto call = Asking(Kind::kDecided, round);
  PASSEL_RETURN_IF_ERROR(worker_->Step(0, call.get()));
  return call->answer.yes;
}

void RemoteLead::StartRound(std::uint64_t round, std::uint8_t flags) {
  auto call = Asking(Kind::kRound, round);
  call->request.flags = flags;
  if (flags & kStageIt) call->bulk = worker_->only_shard->staged_gradient();
  if (flags & kValues) call->into = worker_->only_shard->next_values();
  worker_->StartStep(0, call.get());
  worker_->round = std::move(call);
}

Status RemoteLead::Arrive(std::uint64_t round) {
  if (!worker_->one_shard()) {
    const auto call = Asking(Kind::kRound, round);
    call->request.flags = kArrive;
    return worker_->Step(0, call.get());
  }
  StartRound(round, kStageIt | kArrive | kAwait | kApply | kValues);
  // In hand: it has arrived.
  const Status arrived = worker_->session(0).Await(
      worker_->round.get(), Deadline::After(worker_->options.answer_limit), true);
  // What else went wrong after the arrival AwaitRound() says.
  return arrived.code() == Code::kCancelled ? Status() : arrived;
}

Result<RoundGrant> RemoteLead::AwaitRound(std::uint64_t round, Deadline deadline) {
  const bool one = worker_->one_shard();
  if (one && worker_->round == nullptr) StartRound(round, kAwait | kApply | kValues);
  if (!one) {
    const auto call = Asking(Kind::kRound, round);
    call->request.flags = kAwait;
    PASSEL_RETURN_IF_ERROR(worker_->Step(0, call.get(), deadline));
    return call->answer.grant.value_or(RoundGrant{});
  }
  Call* call = worker_->round.get();
  const Status status = worker_->session(0).Await(call, deadline);
  if (!status.ok() && !call->finished) {
    if (status.code() != Code::kDeadlineExceeded && status.code() != Code::kUnavailable) {
      return status;
    }
    return DeadlineExceeded(fmt::format("round {} is not complete: {}", round, status.message()));
  }
  const std::unique_ptr<Call> ended = std::move(worker_->round);
  worker_->EndStep(0, ended.get());
  PASSEL_RETURN_IF_ERROR(status);
  if (ended->answer.values) {
    worker_->only_shard->TakeValues(ended->answer, ended->answer.state.completed_round);
  }
  return ended->answer.grant.value_or(RoundGrant{});
}

Status RemoteLead::FinishRound(const RoundGrant& grant) {
  if (grant.count == 0 || completed_round() >= grant.round) return {};
  const auto call = Asking(Kind::kFinishRound);
  call->request.grant = grant;
  return worker_->Step(0, call.get());
}

bool RemoteLead::AwaitCompletion(std::uint64_t round, Deadline deadline) {
  if (completed_round() >= round) return true;
  const auto call = Asking(Kind::kAwaitCompletion, round);
  return worker_->Step(0, call.get(), deadline).ok() && call->answer.yes;
}

void RemoteLead::DecideNoMore() { (void)worker_->Step(0, Asking(Kind::kDecideNoMore).get()); }

Result<std::optional<std::uint64_t>> RemoteLead::AwaitChange(Deadline deadline) {
  const auto call = Asking(Kind::kAwaitChange);
  PASSEL_RETURN_IF_ERROR(worker_->Step(0, call.get(), deadline));
  return call->answer.yes ? std::optional(call->answer.number) : std::nullopt;
}

Status RemoteLead::PublishChange() { return worker_->Step(0, Asking(Kind::kPublishChange).get()); }

Status RemoteLead::EnterMode(const ModeWord& mode) {
  const auto call = Asking(Kind::kEnterMode);
  call->request.mode = mode.Pack();
  PASSEL_RETURN_IF_ERROR(worker_->Step(0, call.get()));
  worker_->session(0).SetMode(mode.Pack());
  worker_->rules.Set(mode.setting);
  return {};
}

}  // namespace passel::fabric
