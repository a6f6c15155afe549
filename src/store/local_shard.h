// local_shard.h - a shard in memory that this process can address: the update engine.
//
// The carrier (heap or arena) lends the memory and outlives the shard. One LocalShard per worker
// and shard; used by one thread, but for Stop().

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/page_memory.h"
#include "base/random.h"
#include "optim/update_formulas.h"
#include "store/block_claims.h"
#include "store/external_sweep.h"
#include "store/local_worker.h"
#include "store/shard.h"
#include "store/shard_memory.h"
#include "store/sweep_order.h"

namespace passel {

/// Resets every word of `memory` to "nothing has happened": version 0, no members, no claims, in
/// mode `first`. The values and slot variables are not touched: the chief writes them. REQUIRES:
/// nobody else uses the memory yet, or it is fresh and zero.
void FormatShard(const ShardMemory& memory, const ModeSetting& first);

class LocalShard : public Shard, private ExternalUpdates {
 public:
  /// For the worker whose life that is. On another shard than its lead it writes there that this
  /// life is there.
  LocalShard(const ShardMemory& memory, std::shared_ptr<LocalWorker> life);

  Status Pull(PulledShard* pulled) override;
  void CopyAll(float* out) override;
  float* gradient(int slot) const override {
    return slot < memory_.gradient_slots ? memory_.Gradient(worker_, slot)
                                         : addend_->floats().data();
  }
  int gradient_slots() const override { return memory_.gradient_slots; }
  float* contents(int k) override { return k == 0 ? memory_.values : memory_.slots[k - 1]; }
  Status Open(const ShardStart& start) override;
  bool initialized() const override;
  Status WaitUntilInitialized(Deadline deadline) override;
  void Leave(Phase end) override;
  void Stop() override;
  Status EnterMode(const ModeWord& mode) override;
  Status PrepareChange(std::uint64_t step) override;
  Status Apply(int slot, Deadline deadline, Version* version_before) override;
  Status ApplyParts(std::span<const GradientPart> parts, Deadline deadline,
                    Version* version_before) override;
  bool TakesParts() const override { return external_ == nullptr; }
  Status Stage(int slot) override;
  Status ApplyRound(const RoundGrant& grant, Deadline deadline) override;
  std::vector<Member> HoldersIn(std::uint64_t round) const override;
  Result<std::uint32_t> SetRates(const RatesStep& step) override;
  ExternalUpdates* external_updates() override { return this; }

 private:
  void SweepElsewhere(ExternalSweep* sweep) override { external_ = sweep; }
  bool AddsElsewhere() const override;
  Status BeginUpdate(StepScalars* scalars) override;
  Status EndUpdate(Version* version_before) override;
  void GiveUpUpdate() override;

  struct Update {                   // what one sweep over the blocks applies
    const StepScalars* scalars;     // [groups]
    const GroupSpans* groups;       // null: the first of these is for all
    const float* const* gradients;  // [count], each the whole shard
    int count;
    int weight;  // > 1: divides their sum, taken in this order
  };
  struct Span {
    std::size_t begin, size;  // floats of the shard
  };
  bool Alive() const { return StateOf(lead_, worker_) == TaskState{epoch_, Phase::kRunning}; }
  Status CheckAlive() const { return life_->CheckAlive(); }
  bool stopped() const { return memory_.state->stop.load(std::memory_order_acquire) != 0; }
  WorkerCounters& counters() { return memory_.tasks[worker_].counters; }
  void Heartbeat() { life_->Heartbeat(); }
  std::int64_t BeginPush();
  Status EndPush(Version* version_before);
  Status CheckCurrent() const;
  const StepScalars* PrepareGroups(std::uint32_t set, std::int64_t t);
  Status ApplyHere(int slot, const StepScalars* scalars, Deadline deadline);
  void ApplyWithoutClaim(const Update& update, std::size_t block);
  Status AwaitHolder(ClaimPatience& patience, const BlockState& blocker, Deadline deadline);
  Status ApplyElsewhere(int slot, const StepScalars& scalars, Deadline deadline);
  /// At most a block. `next` floats behind it are our next span, and fetched meanwhile.
  void ApplySpan(const Update& update, Span span, std::size_t next);
  void ApplyGroups(const Update& update, Span span, std::size_t next);
  void ApplySpanOfParts(const Update& update, Span span);
  Span PieceSpan(std::size_t piece) const;
  void SavePiece(std::size_t piece);
  void PutBackPiece(std::size_t piece, int worker);
  bool FindHalfAppliedPiece(std::uint64_t round, std::size_t block, int former, UndoTag* found,
                            int* worker) const;
  Status ApplyRoundBlock(const Update& update, const RoundGrant& grant, std::size_t block,
                         std::size_t first_piece, std::uint64_t round_before);
  Status ResolveOwnUndo(const Update& update, const RoundGrant& grant, Deadline deadline);
  Status ClaimAndApplyRoundBlock(const Update& update, const RoundGrant& grant, std::size_t block,
                                 bool take_over, bool* done);
  Status AwaitBlock(ClaimPatience& patience, std::size_t block, std::uint64_t round,
                    Deadline deadline);
  Claim MyClaim() const { return {epoch_, worker_}; }

  const std::shared_ptr<LocalWorker> life_;
  const ShardMemory memory_;
  const ShardMemory lead_;         // its tasks are the members
  ShardRules rules_;               // of the mode that this worker goes by
  std::uint32_t mode_number_ = 0;  // its number
  const int worker_;
  const std::uint32_t epoch_;
  const WaitOptions& options_ = life_->options();
  Watch* const watch_ = &life_->watch();
  std::optional<PageFloats> addend_;   // [floats], zero behind the variables; see EnterMode()
  ExternalSweep* external_ = nullptr;  // updates the values; null: we do
  BlockState external_blocker_{};      // for patience with who holds a block there
  Random random_;                      // start block of a sweep elsewhere: not part of the results
  SweepOrder order_;                   // of our passes over the values: not part of the results
  std::span<const GradientPart> parts_;       // not empty: of this update, in place of the slot
  std::vector<std::uint32_t> todo_;           // [num_blocks]
  std::vector<StepScalars> scalars_;          // [groups]: of one update
  std::vector<const float*> gradients_;       // [num_workers]: of one round, in task order
  std::vector<const float*> span_gradients_;  // [num_workers]: the same at one span
};

}  // namespace passel
