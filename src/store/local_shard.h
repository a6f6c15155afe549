// local_shard.h - a shard in memory that this process can address: the update engine.
//
// The carrier (heap or arena) lends the memory and outlives the shard. One LocalShard per worker
// and shard; used by one thread, but for Stop(), stopped() and global_step().

#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "optim/optimizer.h"
#include "store/block_claims.h"
#include "store/engine_options.h"
#include "store/external_sweep.h"
#include "store/membership.h"
#include "store/shard.h"
#include "store/shard_memory.h"
#include "store/shard_rules.h"
#include "store/sweep_order.h"
#include "store/watch.h"

namespace passel {

/// Resets every word of `memory` to "nothing has happened": version 0, no members, no claims, in
/// mode `first`. The values and slot variables are not touched: the chief writes them. REQUIRES:
/// nobody else uses the memory yet, or it is fresh and zero.
void FormatShard(const ShardMemory& memory, const ModeSetting& first);

class LocalShard final : public Shard {
 public:
  /// Joins as worker `worker` on the lead. Errors: see Join() in membership.h.
  static Result<std::unique_ptr<LocalShard>> Join(const ShardMemory& memory,
                                                  const ShardRules& rules, int worker,
                                                  const ProcessIdentity& who,
                                                  const EngineOptions& options);
  /// Another shard of the job, for the worker that joined on `lead`.
  static std::unique_ptr<LocalShard> Follow(const ShardMemory& memory, const LocalShard& lead,
                                            const ProcessIdentity& who);
  ~LocalShard() override;

  const float* values() const override { return memory_.values; }
  void CopyAll(float* out) override;
  float* gradient(int slot) const override {
    return slot < memory_.gradient_slots ? memory_.Gradient(worker_, slot) : addend_.get();
  }
  int gradient_slots() const override { return memory_.gradient_slots; }
  Version version() const override;
  float* values_for_initialization() override { return memory_.values; }
  Status Open(std::uint64_t cohort) override;
  bool initialized() const override;
  Status WaitUntilInitialized(Deadline deadline) override;
  Status Leave(Phase end) override;
  Status CheckAlive() const override;
  void SayAlive() override { Heartbeat(); }
  Status Apply(int slot, Deadline deadline, Version* version_before) override;
  bool AddsElsewhere() const override;
  Status BeginUpdate(StepScalars* scalars) override;
  Status EndUpdate(Version* version_before) override;
  void GiveUpUpdate() override;
  void SweepElsewhere(ExternalSweep* sweep) override;
  void CompleteStep() override;
  Status AwaitSlowest(Deadline deadline) override;
  std::uint64_t ClockLead() const override;
  ModeWord CurrentMode() const override;
  Status EnterMode(const ModeWord& mode) override;
  bool ChangeDue() override;
  Status ArriveAtChange() override;
  Status AwaitChange(Deadline deadline,
                     const std::function<void(std::uint64_t)>& prepare_all) override;
  void PrepareChange(std::uint64_t step) override;
  std::vector<Member> MissingAtChange() const override;
  Status Stage(int slot) override;
  std::uint64_t completed_round() const override;
  bool RoundDecided(std::uint64_t round) const override { return DecidedRound() >= round; }
  Status Arrive(std::uint64_t round) override;
  Result<RoundGrant> AwaitRound(std::uint64_t round, Deadline deadline) override;
  void DecideNoMore() override;
  Status ApplyRound(const RoundGrant& grant, Deadline deadline) override;
  void FinishRound(const RoundGrant& grant) override;
  bool AwaitCompletion(std::uint64_t round, Deadline deadline) override;
  std::int64_t global_step() const override;
  std::int64_t IncrementGlobalStep() override;
  void Stop() override;
  bool stopped() const override;
  std::vector<Member> membership() const override;
  std::vector<Member> MissingIn(std::uint64_t round) const override;
  std::vector<Member> HoldersIn(std::uint64_t round) const override;
  std::vector<Member> TooFarBehind() const override;
  WorkerCounters& counters() override { return memory_.tasks[worker_].counters; }

 private:
  struct FreeMemory {
    void operator()(float* p) const { std::free(p); }
  };
  using Buffer = std::unique_ptr<float, FreeMemory>;

  LocalShard(const ShardMemory& memory, const ShardMemory& lead, const ShardRules& rules,
             int worker, std::uint32_t epoch, const EngineOptions& options,
             std::shared_ptr<Watch> watch);

  struct Update;  // what one sweep applies: scalars and gradients
  struct Span {
    std::size_t begin, size;  // floats of the shard
  };
  bool Alive() const { return StateOf(lead_, worker_) == TaskState{epoch_, Phase::kRunning}; }
  Status CheckWait() const;
  std::int64_t BeginPush();
  Status EndPush(Version* version_before);
  Status CheckCurrent() const;
  Status ApplyHere(int slot, const StepScalars& scalars, Deadline deadline);
  Status ApplyElsewhere(int slot, const StepScalars& scalars, Deadline deadline);
  /// At most a block. `next` floats behind it are our next span, and fetched meanwhile.
  void ApplySpan(const Update& update, Span span, std::size_t next);
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
  void Heartbeat();
  bool TryDecide(std::uint64_t round);
  std::uint32_t EndsWith(std::uint64_t round);
  void TryChange(const std::function<void(std::uint64_t)>& prepare_all);
  std::uint64_t DecidedRound() const;
  Status NotApplied(std::uint64_t round) const;
  std::uint64_t OwnClock() const;
  Claim MyClaim() const { return {epoch_, worker_}; }

  const ShardMemory memory_;
  const ShardMemory lead_;         // its tasks are the members
  ShardRules rules_;               // of the mode that this worker goes by
  std::uint32_t mode_number_ = 0;  // its number
  const int worker_;
  const std::uint32_t epoch_;
  const EngineOptions options_;
  const std::shared_ptr<Watch> watch_;  // of this worker, over all shards
  Buffer addend_;  // [floats], zero behind the variables; null until a quota exceeds 1
  ExternalSweep* external_ = nullptr;  // updates the values; null: we do
  BlockState external_blocker_{};      // for patience with who holds a block there
  Random random_;                      // start block of a sweep elsewhere: not part of the results
  SweepOrder order_;                   // of our passes over the values: not part of the results
  std::vector<std::uint32_t> todo_;    // [num_blocks]
  std::vector<const float*> gradients_;       // [num_workers]: of one round, in task order
  std::vector<const float*> span_gradients_;  // [num_workers]: the same at one span
  bool left_ = false;
};

}  // namespace passel
