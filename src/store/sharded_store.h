// sharded_store.h - one ParameterStore out of P shards.
//
// Shard 0 leads: global step, rounds, membership and stop are its. An async push is applied to the
// others first, so that the global step moves after all variables have.

#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/nvtx.h"
#include "base/page_memory.h"
#include "store/external_sweep.h"
#include "store/lead.h"
#include "store/parameter_store.h"
#include "store/shard.h"
#include "store/shard_rules.h"

namespace passel {

class ShardedStore final : public ParameterStore {
 public:
  /// `shards[i]` owns the variables that `table` places on shard i, all joined as `worker`.
  ShardedStore(VariableTable table, const ShardRules& rules, int worker, std::unique_ptr<Lead> lead,
               std::vector<std::unique_ptr<Shard>> shards);

  /// In the modes without rounds Wait() hands a gradient out, and returns what became of the one
  /// before: the next step begins on the values that there are. REQUIRES: two gradient slots.
  void Prefetch() { prefetch_ = true; }

  /// From now on all of it goes by the mode in force. REQUIRES: before anything else.
  Status EnterCurrentMode();

  const VariableTable& variables() const override { return table_; }
  Mode mode() const override { return lead_->CurrentMode().setting.mode; }
  std::uint32_t mode_changes() const override { return mode_changes_; }
  int worker() const override { return worker_; }
  Status Initialize(const std::function<void(VarId, std::span<float>)>& fill) override;
  Status Restore(const JobProgress& progress,
                 const std::function<void(VarId, int k, std::span<float>)>& fill) override;
  bool initialized() const override;
  Status WaitUntilInitialized(Deadline deadline) override;
  Status Leave() override { return LeaveAs(Phase::kDone); }
  Status LeaveForNow() override { return LeaveAs(Phase::kLeft); }
  Result<ParamView> Pull(PullMode mode) override;
  Result<ParamView> PullLast() override;
  GradientBuffer LendGradient() override;
  GradientBuffer UseGradient(const float* const* values) override;
  bool GradientIsFinite(const GradientBuffer& gradient, std::string* variable) const override;
  Result<Ticket> Push(const GradientBuffer& gradient, std::uint32_t stamp,
                      Deadline deadline) override;
  Result<PushOutcome> Wait(Ticket ticket, Deadline deadline) override;
  bool UpdateIsAddition() const override;
  Status BeginUpdate(float* rate) override;
  Result<Ticket> EndUpdate(std::uint32_t stamp) override;
  void GiveUpUpdate() override;
  Status SetRates(std::span<const GroupRates> rates) override;
  void SayAlive() override { lead_->SayAlive(); }
  void SweepElsewhere(std::span<ExternalSweep* const> sweeps) override;
  std::int64_t global_step() const override { return lead_->global_step(); }
  void Stop() override;
  bool stopped() const override { return lead_->stopped(); }
  std::vector<Member> membership() const override { return lead_->membership(); }
  std::vector<Member> WaitingFor() const override;
  WorkerCounters& counters() override { return lead_->counters(); }
  void SayCursor(std::uint64_t epochs, std::uint64_t index) override {
    cursor_ = {epochs, index};
    cursor_said_ = true;
  }
  void OnStep(std::function<void()> count) override { on_step_ = std::move(count); }

 private:
  static constexpr std::uint32_t kStamps = 8;
  using Versions = std::array<Version, kMaxShards>;

  Status CheckNotInitialized() const;
  Status OpenShards(ShardStart start, const std::vector<JobProgress::Shard>& at);
  void UseValues(std::size_t shard, const float* values);
  ExternalUpdates* Elsewhere(std::size_t shard) const;
  Status LeaveAs(Phase end);
  Status EndRounds();
  Status FinishInterruptedRound(Deadline deadline);
  Status Complete(const RoundGrant& grant, Deadline deadline);
  Status CountUpdate(const Versions& at_apply, std::uint32_t stamp);
  Status PushAhead(int slot, std::uint32_t stamp, Deadline deadline);
  Status PullAhead();
  Status ApplyAhead();
  Status EndAhead();
  Result<PushOutcome> GoAhead(Deadline deadline);
  bool ApplySoon() { return lead_->ChangeDue() || stopped(); }
  Status PushToRound(int slot, std::uint32_t stamp);
  Status ApplyCallers(std::size_t shard, Deadline deadline, Version* version_before);
  bool TakesParts() const;
  Status FinishRound(Deadline deadline);
  Status FinishStep(Deadline deadline);
  Status ChangeMode(Deadline deadline);
  void UseRules();
  void CountStep();
  std::int64_t OwnSteps() {
    return static_cast<std::int64_t>(counters().local_steps.load(std::memory_order_relaxed));
  }
  bool rounds() const { return rules_.rounds(); }
  std::uint64_t Staleness(const Versions& at_apply, std::uint32_t stamp) const;
  std::uint64_t PulledRound() const;
  std::uint64_t RoundsSince(std::uint32_t stamp, std::uint64_t round) const;
  static PushOutcome OutcomeAt(std::uint64_t round);

  const VariableTable table_;
  ShardRules rules_;  // of the mode that this worker goes by
  const int worker_;
  const std::unique_ptr<Lead> lead_;
  const std::vector<std::unique_ptr<Shard>> shards_;
  std::array<PulledShard, kMaxShards> at_pull_{};     // of the last pull
  std::vector<const float*> shared_values_;           // [variables]: there
  std::vector<PageFloats> copies_;                    // [shards]: for PullMode::kCopy
  std::vector<const float*> copied_values_;           // [variables]: there
  std::vector<std::vector<float*>> gradient_values_;  // [gradient slots (+ 1)][variables]
  std::vector<float*> callers_values_;                // [variables]: UseGradient()
  std::vector<std::vector<GradientPart>> parts_;      // [shards]: of these
  std::array<Versions, kStamps> pulled_{};            // ring, by stamp
  std::uint32_t next_stamp_ = 0;
  int next_slot_ = 0;
  std::uint64_t next_ticket_ = 1;
  std::uint64_t round_ = 0;        // the round of the open ticket
  std::uint32_t round_stamp_ = 0;  // its pull
  int quota_ = 1;                  // gradients of ours that a round takes
  int summed_ = 0;                 // of these, those in slot 0 that have not arrived yet
  std::uint64_t summed_base_ = 0;  // the rounds completed when they were pulled
  enum class Open { kNothing, kRound, kDropped, kStep, kChange };
  Open open_ = Open::kNothing;  // what Wait() has to do for the last push
  std::uint32_t mode_changes_ = 0;
  bool mode_entered_ = false;  // kChange: the mode has changed, and ssp has to wait in it
  bool update_begun_ = false;  // and not ended
  bool prefetch_ = false;
  struct {
    enum { kNone, kUnderWay, kPushed, kFailed } state = kNone;
    bool pulled = false;  // since it is under way
    bool untold = false;  // outcome_ is of one that Wait() has not told of
    Status failed = {};   // kFailed: perhaps some ps have applied one
    int slot = 0;
    std::uint32_t stamp = 0;
    Deadline deadline = Deadline::After({});
  } ahead_;               // the last gradient that was pushed, if its end is not awaited yet
  bool entered_ = false;  // Initialize() or WaitUntilInitialized() returned OK
  struct {
    std::uint64_t epochs, index;
  } cursor_ = {0, 0};  // of SayCursor(), if cursor_said_
  bool cursor_said_ = false;
  std::function<void()> on_step_;
  PushOutcome outcome_;    // of the last ticket, but for kRound
  nvtx::Span round_span_;  // from arrival at round_ to its end
};

}  // namespace passel
