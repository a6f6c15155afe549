#include "fabric/remote_shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

#include "optim/optimizer.h"
#include "optim/update_kernels.h"

namespace passel::fabric {

RemoteShard::RemoteShard(std::shared_ptr<RemoteWorker> worker, int shard)
    : worker_(std::move(worker)),
      shard_(shard),
      alone_(worker_->one_shard()),
      floats_(worker_->plan.variables.ShardFloats(shard)),
      rules_(worker_->plan.Rules()),
      values_{PageFloats(floats_), PageFloats(floats_)} {
  for (int slot = 0; slot < gradient_slots(); ++slot) gradients_.emplace_back(floats_);
  if (alone_) worker_->only_shard = this;
}

Status RemoteShard::Pull(PulledShard* pulled) {
  // Others may have made rounds since these values came: they are not those of the last round.
  if (IsRoundMode(rules_.mode) && worker_->state().completed_round != round_) fresh_ = false;
  if (!fresh_) {
    Call call;
    call.request.kind = Kind::kPull;
    call.request.flags = kValues;
    call.into = next_values();
    PASSEL_RETURN_IF_ERROR(Step(&call));
    if (!call.answer.values) return Internal(fmt::format("ps/{} sent no values", shard_));
    TakeValues(call.answer, worker_->state().completed_round);
  }
  fresh_ = false;
  current_ = 1 - current_;
  *pulled = {values_[current_].floats().data(), version_, /*own=*/true};
  return {};
}

void RemoteShard::TakeValues(const Answer& answer, std::uint64_t round) {
  fresh_ = true;
  round_ = round;
  version_ = answer.version;
}

void RemoteShard::CopyAll(float* out) {
  std::copy_n(values_[current_].floats().data(), floats_, out);
}

float* RemoteShard::gradient(int slot) const {
  return gradients_[static_cast<std::size_t>(slot)].floats().data();
}

float* RemoteShard::contents(int k) {
  if (contents_ == nullptr) {
    const int parts = 1 + NumSlots(worker_->plan.optimizer);
    contents_ = std::make_unique<PageFloats>(static_cast<std::size_t>(parts) * floats_);
  }
  return contents_->floats().data() + static_cast<std::size_t>(k) * floats_;
}

Status RemoteShard::Open(const ShardStart& start) {
  (void)contents(0);
  Call call;
  call.request.kind = Kind::kOpen;
  call.request.start = start;
  call.bulk = start.with_slots ? contents_->floats() : contents_->floats().first(floats_);
  PASSEL_RETURN_IF_ERROR(Step(&call));
  contents_.reset();
  return {};
}

bool RemoteShard::initialized() const {
  if (initialized_) return true;
  Call call;
  call.request.kind = Kind::kAsk;
  initialized_ = worker_->Quick(shard_, &call).ok() && call.answer.state.initialized;
  return initialized_;
}

Status RemoteShard::WaitUntilInitialized(Deadline deadline) {
  Call call;
  call.request.kind = Kind::kAwaitInitialized;
  return Step(&call, deadline);
}

void RemoteShard::Leave(Phase end) {
  if (shard_ == 0) return;
  Call call;
  call.request.kind = Kind::kLeave;
  call.request.number = static_cast<std::uint64_t>(end);
  (void)Step(&call);
}

void RemoteShard::Stop() {
  if (shard_ == 0) return;  // the lead's word stands in the same memory
  Call call;
  call.request.kind = Kind::kStop;
  (void)worker_->Quick(shard_, &call);
}

// The proxy on the lead enters a mode with both.
Status RemoteShard::EnterMode(const ModeWord& mode) {
  if (shard_ != 0) {
    Call call;
    call.request.kind = Kind::kEnterMode;
    call.request.mode = mode.Pack();
    PASSEL_RETURN_IF_ERROR(Step(&call));
    worker_->session(shard_).SetMode(mode.Pack());
  }
  rules_.Set(mode.setting);
  staged_ = 0;
  fresh_ = false;  // others have gone on since
  const auto slots = static_cast<std::size_t>(gradient_slots());
  if (!IsRoundMode(rules_.mode) || rules_.Quota(worker_->worker) == 1) return {};
  if (gradients_.size() > slots) return {};
  try {
    gradients_.emplace_back(floats_);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(fmt::format(
        "no memory for {} values of gradient: use a smaller model, or a --replicas_to_aggregate "
        "of at most {}, the number of workers",
        floats_, rules_.num_workers));
  }
  return {};
}

Status RemoteShard::PrepareChange(std::uint64_t step) {
  Call call;
  call.request.kind = Kind::kPrepareChange;
  call.request.number = step;
  return Step(&call);
}

Status RemoteShard::Apply(int slot, Deadline deadline, Version* version_before) {
  worker_->counted.reset();
  worker_->near_enough = false;
  Call call;
  call.request.kind = Kind::kUpdate;
  call.request.slot = slot;
  call.bulk = {gradient(slot), floats_};
  if (alone_) {
    call.request.flags = kCount | kValues | (rules_.mode == Mode::kSsp ? kSlowest : 0);
    call.into = next_values();
  }
  PASSEL_RETURN_IF_ERROR(Step(&call, deadline));
  if (alone_) {
    worker_->counted = call.answer.step;
    worker_->near_enough = call.answer.yes;
  }
  if (call.answer.values) TakeValues(call.answer, 0);
  *version_before = call.answer.number;
  return {};
}

// Only the sum of all that a round takes from this worker travels: where there is one shard with
// the arrival, else as soon as it is whole.
Status RemoteShard::Stage(int slot) {
  if (slot == 0) staged_ = 0;
  if (slot >= gradient_slots()) {
    const float* const both[] = {gradient(0), gradient(slot)};
    SumGradients(gradient(0), both, 2, 1.0F, floats_);
  }
  if (++staged_ < rules_.Quota(worker_->worker) || alone_) return {};
  Call call;
  call.request.kind = Kind::kStage;
  call.bulk = staged_gradient();
  return Step(&call);
}

Status RemoteShard::ApplyRound(const RoundGrant& grant, Deadline deadline) {
  if (grant.count == 0 || worker_->state().completed_round >= grant.round) return {};
  Call call;
  call.request.kind = Kind::kApplyRound;
  call.request.grant = grant;
  call.request.flags = kValues;
  call.into = next_values();
  PASSEL_RETURN_IF_ERROR(Step(&call, deadline));
  if (call.answer.values) TakeValues(call.answer, grant.round);
  return {};
}

std::vector<Member> RemoteShard::HoldersIn(std::uint64_t round) const {
  Call call;
  call.request.kind = Kind::kHolders;
  call.request.number = round;
  (void)worker_->Quick(shard_, &call);
  return call.answer.members;
}

}  // namespace passel::fabric
