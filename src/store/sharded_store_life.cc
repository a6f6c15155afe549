// A worker's life beside its steps: first values, joining what goes on, changes of the mode, the
// end.

#include <fmt/core.h>

#include <algorithm>
#include <random>

#include "optim/update_kernels.h"
#include "store/rates.h"
#include "store/sharded_store.h"

namespace passel {
namespace {

// Who holds a block in it may be stopped.
constexpr std::chrono::seconds kLastRoundLimit{5};

// How long one that a round does not count leaves it to its members.
constexpr auto kLendAHandAfter = 4 * kWaitSlice;

}  // namespace

Status ShardedStore::Initialize(const std::function<void(VarId, std::span<float>)>& fill) {
  PASSEL_RETURN_IF_ERROR(CheckNotInitialized());
  for (VarId id = 0; id < table_.size(); ++id) {
    const VariableInfo& v = table_[id];
    float* values = shards_[static_cast<std::size_t>(v.shard)]->contents(0);
    fill(id, {values + v.offset, v.elements});
  }
  return OpenShards({}, std::vector<JobProgress::Shard>(shards_.size()));
}

Status ShardedStore::Restore(const JobProgress& progress,
                             const std::function<void(VarId, int k, std::span<float>)>& fill) {
  PASSEL_RETURN_IF_ERROR(CheckNotInitialized());
  if (progress.shards.size() != shards_.size()) {
    return InvalidArgument(
        fmt::format("the values are spread over {} ps, and were over {}: start it with {} ps",
                    shards_.size(), progress.shards.size(), progress.shards.size()));
  }
  if (!progress.rates.empty()) {
    PASSEL_RETURN_IF_ERROR(passel::Validate(rules_.optimizer, table_.groups(), progress.rates));
  }
  // Between the variables, too: there a sum of squares must not be zero.
  for (int s = 0; s < table_.shards(); ++s) {
    for (int k = 0; k < NumSlots(rules_.optimizer); ++k) {
      std::fill_n(shards_[static_cast<std::size_t>(s)]->contents(1 + k), table_.ShardFloats(s),
                  SlotInitialValue(rules_.optimizer, k));
    }
  }
  for (VarId id = 0; id < table_.size(); ++id) {
    const VariableInfo& v = table_[id];
    for (int k = 0; k <= NumSlots(rules_.optimizer); ++k) {
      float* floats = shards_[static_cast<std::size_t>(v.shard)]->contents(k);
      fill(id, k, {floats + v.offset, v.elements});
    }
  }
  PASSEL_RETURN_IF_ERROR(lead_->Restore(progress));
  PASSEL_RETURN_IF_ERROR(EnterCurrentMode());
  if (!progress.rates.empty()) PASSEL_RETURN_IF_ERROR(SetRates(progress.rates));
  ShardStart start;
  start.round = static_cast<std::uint64_t>(progress.global_step);
  start.with_slots = true;
  return OpenShards(start, progress.shards);
}

Status ShardedStore::SetRates(std::span<const GroupRates> rates) {
  if (worker_ != 0) return OnlyTheChiefSetsRates();
  PASSEL_RETURN_IF_ERROR(passel::Validate(rules_.optimizer, table_.groups(), rates));
  RatesStep all{0, /*write=*/true, /*use=*/true, {rates.begin(), rates.end()}};
  if (shards_.size() == 1) return shards_[0]->SetRates(all).status();
  PASSEL_ASSIGN_OR_RETURN(all.set, shards_[0]->SetRates({}));
  RatesStep write = all, use = all;
  write.use = use.write = false;
  use.rates.clear();
  for (std::size_t s = 1; s < shards_.size(); ++s) {
    PASSEL_RETURN_IF_ERROR(shards_[s]->SetRates(write).status());
  }
  // Rounds take it from here on.
  PASSEL_RETURN_IF_ERROR(shards_[0]->SetRates(all).status());
  for (std::size_t s = 1; s < shards_.size(); ++s) {
    PASSEL_RETURN_IF_ERROR(shards_[s]->SetRates(use).status());
  }
  return {};
}

Status ShardedStore::CheckNotInitialized() const {
  if (!initialized()) return {};
  return FailedPrecondition("the variables are initialised already: values are never rolled back");
}

Status ShardedStore::OpenShards(ShardStart start, const std::vector<JobProgress::Shard>& at) {
  std::random_device random;
  start.cohort = std::uint64_t{random()} << 32 | random();
  // The lead's last: it is what the others look at first.
  for (std::size_t s = shards_.size(); s-- > 0;) {
    start.version = at[s].version;
    start.optimizer_step = at[s].optimizer_step;
    PASSEL_RETURN_IF_ERROR(shards_[s]->Open(start));
  }
  entered_ = true;
  return {};
}

bool ShardedStore::initialized() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->initialized(); });
}

Status ShardedStore::WaitUntilInitialized(Deadline deadline) {
  for (const auto& shard : shards_) PASSEL_RETURN_IF_ERROR(shard->WaitUntilInitialized(deadline));
  // Since we joined, the chief may have restored clocks and the mode; else that does not change
  // without us.
  PASSEL_RETURN_IF_ERROR(EnterCurrentMode());
  if (rounds()) PASSEL_RETURN_IF_ERROR(FinishInterruptedRound(deadline));
  if (rules_.bounded()) PASSEL_RETURN_IF_ERROR(lead_->AwaitSlowest(deadline));
  if (lead_->ChangeDue()) PASSEL_RETURN_IF_ERROR(ChangeMode(deadline));
  entered_ = true;
  return {};
}

// Between two steps. May be called again after an error of time.
Status ShardedStore::ChangeMode(Deadline deadline) {
  while (mode_entered_ || lead_->ChangeDue()) {
    if (!mode_entered_) {
      for (;;) {
        PASSEL_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> step,
                                lead_->AwaitChange(deadline));
        if (!step) break;
        for (const auto& shard : shards_) PASSEL_RETURN_IF_ERROR(shard->PrepareChange(*step));
        PASSEL_RETURN_IF_ERROR(lead_->PublishChange());
      }
      PASSEL_RETURN_IF_ERROR(EnterCurrentMode());
      ++mode_changes_;
      mode_entered_ = true;
    }
    // All have entered the mode before the first one begins a step in it.
    if (rules_.bounded()) PASSEL_RETURN_IF_ERROR(lead_->AwaitSlowest(deadline));
    mode_entered_ = false;
  }
  return {};
}

Status ShardedStore::EnterCurrentMode() {
  const ModeWord mode = lead_->CurrentMode();
  PASSEL_RETURN_IF_ERROR(lead_->EnterMode(mode));
  for (const auto& shard : shards_) PASSEL_RETURN_IF_ERROR(shard->EnterMode(mode));
  rules_.mode = mode.setting;
  UseRules();
  return {};
}

// A round was decided, then members died: it must be complete before this worker's gradient slot,
// which it may count, is written again.
Status ShardedStore::FinishInterruptedRound(Deadline deadline) {
  const std::uint64_t next = lead_->completed_round() + 1;
  PASSEL_ASSIGN_OR_RETURN(const bool decided, lead_->RoundDecided(next));
  if (!decided) return {};
  PASSEL_ASSIGN_OR_RETURN(const RoundGrant grant, lead_->AwaitRound(next, deadline));
  return Complete(grant, deadline);
}

// A round that does not count us is for its members to apply, who are not to wait for us. But they
// may have died.
Status ShardedStore::Complete(const RoundGrant& grant, Deadline deadline) {
  if (grant.count == 0) return {};  // it is: others have decided the next one
  if (!grant.Counts(worker_) &&
      lead_->AwaitCompletion(grant.round, deadline.Sooner(kLendAHandAfter))) {
    return {};
  }
  for (const auto& shard : shards_) PASSEL_RETURN_IF_ERROR(shard->ApplyRound(grant, deadline));
  return lead_->FinishRound(grant);
}

// The job is stopped. The round that was decided last is the last one: after this the values, which
// this worker may look at or save, stay as they are.
Status ShardedStore::EndRounds() {
  if (!rounds()) return {};
  PASSEL_RETURN_IF_ERROR(lead_->DecideNoMore());
  (void)FinishInterruptedRound(Deadline::After(kLastRoundLimit));
  return {};
}

Status ShardedStore::LeaveAs(Phase end) {
  const Status ended = ahead_.state == ahead_.kPushed ? ApplyAhead() : EndAhead();
  if (summed_ > 0) Increment(counters().dropped, static_cast<std::uint64_t>(summed_));
  summed_ = 0;
  if (stopped()) {
    (void)EndRounds();  // if the lead does not answer, Leave() says so
    Stop();             // on all shards, whoever was asked for it
  }
  PASSEL_RETURN_IF_ERROR(lead_->Leave(end));
  for (const auto& shard : shards_) shard->Leave(end);
  return ended;
}

void ShardedStore::Stop() {
  lead_->Stop();
  for (const auto& shard : shards_) shard->Stop();
}

std::vector<Member> ShardedStore::WaitingFor() const {
  if (open_ == Open::kRound) {
    std::vector<Member> members = lead_->Missing(WaitingOn::kRound, round_);
    for (const auto& shard : shards_) {
      if (members.empty()) members = shard->HoldersIn(round_);
    }
    return members;
  }
  if (open_ == Open::kChange && !mode_entered_) {
    return lead_->Missing(WaitingOn::kChange, lead_->CurrentMode().number + 1);
  }
  if (open_ == Open::kStep || open_ == Open::kChange) return lead_->Missing(WaitingOn::kStep, 0);
  return {};
}

}  // namespace passel
