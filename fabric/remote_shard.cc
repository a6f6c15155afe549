#include "fabric/remote_shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>
#include <utility>

#include "optim/optimizer.h"
#include "optim/update_kernels.h"

namespace passel::fabric {

RemoteShard::RemoteShard(std::shared_ptr<RemoteWorker> worker, int shard)
    : worker_(std::move(worker)),
      shard_(shard),
      alone_(worker_->reaches_the_lead_alone()),
      floats_(worker_->plan.variables.ShardFloats(shard)),
      rules_(worker_->plan.Rules()),
      values_{PageFloats(floats_), PageFloats(floats_)} {
  for (int slot = 0; slot < gradient_slots(); ++slot) gradients_.emplace_back(floats_);
  worker_->shards.push_back(this);
}

// What is under way reads and writes the memory of this one.
RemoteShard::~RemoteShard() {
  worker_->GiveUp(shard_);
  std::erase(worker_->shards, this);
}

template <typename Fill>
void RemoteShard::Begin(Kind kind, const Fill& fill) {
  auto call = std::make_unique<Call>(kind);
  fill(*this, call.get());
  worker_->Begin(shard_, std::move(call));
}

template <typename Fill>
void RemoteShard::BeginTogether(Kind kind, const Fill& fill) {
  const Call* mine = worker_->under_way(shard_);
  if (mine != nullptr && mine->request.kind == kind) return;
  for (std::size_t s = worker_->shards.size(); s-- > 0;) worker_->shards[s]->Begin(kind, fill);
}

Status RemoteShard::Pull(PulledShard* pulled) {
  // Others may have made rounds since these values came: they are not those of the last round.
  if (ahead_) {
    *pulled = {values_[current_].floats().data(), version_, /*own=*/true};
    return {};
  }
  const std::uint64_t completed = worker_->completed_round();
  if (rules_.rounds() && completed != round_) fresh_ = false;
  if (!fresh_) {
    if (rules_.rounds()) {
      // Another round may be made meanwhile. ps/0 says first which one its values are of, so that
      // none of the others' are of a former one.
      BeginPull();
    } else {
      BeginPulls();
    }
    PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->End(shard_));
    if (!answer.values && floats_ > 0) return Internal(fmt::format("ps/{} sent no values", shard_));
    // ps/0 says how many it had before it read them; of the others' that is known from before.
    TakeValues(answer, shard_ == 0 ? worker_->completed_round() : completed);
  }
  fresh_ = false;
  current_ = 1 - current_;
  *pulled = {values_[current_].floats().data(), version_, /*own=*/true, round_};
  return {};
}

void RemoteShard::BeginPull() {
  Begin(Kind::kPull, [](const RemoteShard& shard, Call* call) { shard.AskForValues(call); });
}

// Not where values wait to be pulled.
void RemoteShard::BeginPulls() {
  const Call* mine = worker_->under_way(shard_);
  if (mine != nullptr && mine->request.kind == Kind::kPull) return;
  for (std::size_t s = worker_->shards.size(); s-- > 0;) {
    if (!worker_->shards[s]->fresh_) worker_->shards[s]->BeginPull();
  }
}

void RemoteShard::AskForValues(Call* call) const {
  call->request.flags |= kValues;
  call->into = values_[1 - current_].floats();
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
  auto call = std::make_unique<Call>(Kind::kOpen);
  call->request.start = start;
  call->bulk = start.with_slots ? contents_->floats() : contents_->floats().first(floats_);
  PASSEL_RETURN_IF_ERROR(worker_->Step(shard_, std::move(call)).status());
  contents_.reset();
  return {};
}

bool RemoteShard::initialized() const {
  if (initialized_) return true;
  const Result<Answer> answer = worker_->Quick(shard_, Call(Kind::kAsk));
  initialized_ = answer.ok() && answer->state.initialized;
  return initialized_;
}

Status RemoteShard::WaitUntilInitialized(Deadline deadline) {
  return worker_->Step(shard_, Kind::kAwaitInitialized, 0, deadline).status();
}

void RemoteShard::Leave(Phase end) {
  if (shard_ != 0) (void)worker_->Step(shard_, Kind::kLeave, static_cast<std::uint64_t>(end));
}

// On ps/0 the lead's word stands in the same memory.
void RemoteShard::Stop() {
  if (shard_ != 0) (void)worker_->QuickOrNot(shard_, Call(Kind::kStop));
}

// The proxy on the lead enters a mode with both.
Status RemoteShard::EnterMode(const ModeWord& mode) {
  if (shard_ != 0) PASSEL_RETURN_IF_ERROR(worker_->EnterMode(shard_, mode));
  rules_.mode = mode.setting;
  staged_ = 0;
  fresh_ = false;  // others have gone on since
  const auto slots = static_cast<std::size_t>(gradient_slots());
  if (!rules_.rounds() || rules_.Quota(worker_->worker) == 1) return {};
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
  return worker_->Step(shard_, Kind::kPrepareChange, step).status();
}

void RemoteShard::BeginApply(int slot, Deadline deadline) {
  BeginUpdate(slot, deadline, /*ahead=*/true);
  worker_->BeginPump();
}

void RemoteShard::BeginUpdate(int slot, Deadline deadline, bool ahead) {
  const bool with_values = ahead || !rules_.bounded() || worker_->near_enough_next;
  const auto update = [&](RemoteShard& shard, Call* call) {
    if (ahead && std::exchange(shard.fresh_, false)) shard.current_ = 1 - shard.current_;
    shard.ahead_ = ahead;
    call->deadline = deadline;
    call->request.slot = slot;
    call->bulk = {shard.gradient(slot), shard.floats_};
    if (!shard.alone_) {
      if (with_values) shard.AskForValues(call);
      return;
    }
    call->request.flags = kCount | (rules_.bounded() ? kSlowest : 0);
    shard.AskForValues(call);
  };
  BeginTogether(Kind::kUpdate, update);
}

Status RemoteShard::Apply(int slot, Deadline deadline, Version* version_before) {
  worker_->counted.reset();
  worker_->near_enough = false;
  BeginUpdate(slot, deadline, /*ahead=*/false);  // unless BeginApply() has
  ahead_ = false;
  PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->End(shard_));
  if (alone_) {
    worker_->counted = answer.step;
    worker_->near_enough = answer.yes;
  }
  if (answer.values) TakeValues(answer, 0);
  *version_before = answer.number;
  return {};
}

// Only the sum of all that a round takes from this worker travels: where there is one shard with
// the arrival, else as soon as it is whole.
Status RemoteShard::Stage(int slot) {
  // A push whose end nobody heard of may have arrived: then what it has staged counts.
  if (worker_->arriving > worker_->completed_round()) return {};
  if (slot == 0) staged_ = 0;
  if (slot >= gradient_slots()) {
    const float* const both[] = {gradient(0), gradient(slot)};
    SumGradients(gradient(0), both, 2, 1.0F, floats_);
  }
  if (++staged_ < rules_.Quota(worker_->worker) || alone_) return {};
  Begin(Kind::kStage,
        [](const RemoteShard& shard, Call* call) { call->bulk = shard.staged_gradient(); });
  return {};  // Arrive() says how it went
}

Status RemoteShard::ApplyRound(const RoundGrant& grant, Deadline deadline) {
  if (grant.count == 0 || !BeginApplyRound(grant, deadline)) return {};
  PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->End(shard_));
  if (answer.values) TakeValues(answer, grant.round);
  return {};
}

bool RemoteShard::BeginApplyRound(const RoundGrant& grant, Deadline deadline) {
  const Call* mine = worker_->under_way(shard_);
  const bool begun = mine != nullptr && mine->request.kind == Kind::kApplyRound &&
                     mine->request.grant.round == grant.round;
  if (begun) return true;
  if (worker_->completed_round() >= grant.round) return false;
  worker_->applying = grant.round;
  const auto apply = [&](const RemoteShard& shard, Call* call) {
    call->deadline = deadline;
    call->request.grant = grant;
    shard.AskForValues(call);
  };
  BeginTogether(Kind::kApplyRound, apply);
  return true;
}

Result<std::uint32_t> RemoteShard::SetRates(const RatesStep& step) {
  Call call(Kind::kSetRates);
  call.request.rates = step;
  PASSEL_ASSIGN_OR_RETURN(const Answer answer, worker_->Quick(shard_, std::move(call)));
  return static_cast<std::uint32_t>(answer.number);
}

std::vector<Member> RemoteShard::HoldersIn(std::uint64_t round) const {
  return worker_->QuickMembers(shard_, Call(Kind::kHolders, round));
}

}  // namespace passel::fabric
