// remote_shard.h - a shard behind messages: two copies of the values that take turns, and memory
// for gradients.

#pragma once

#include <memory>
#include <vector>

#include "base/page_memory.h"
#include "fabric/remote_worker.h"
#include "store/shard.h"

namespace passel::fabric {

class RemoteShard final : public Shard {
 public:
  RemoteShard(std::shared_ptr<RemoteWorker> worker, int shard);

  Status Pull(PulledShard* pulled) override;
  ~RemoteShard() override;
  void CopyAll(float* out) override;
  float* gradient(int slot) const override;
  int gradient_slots() const override { return worker_->plan.gradient_slots; }
  float* contents(int k) override;
  Status Open(const ShardStart& start) override;
  bool initialized() const override;
  Status WaitUntilInitialized(Deadline deadline) override;
  void Leave(Phase end) override;
  void Stop() override;
  Status EnterMode(const ModeWord& mode) override;
  Status PrepareChange(std::uint64_t step) override;
  void BeginApply(int slot, Deadline deadline) override;
  Status Apply(int slot, Deadline deadline, Version* version_before) override;
  Status Stage(int slot) override;
  Status ApplyRound(const RoundGrant& grant, Deadline deadline) override;
  std::vector<Member> HoldersIn(std::uint64_t round) const override;
  Result<std::uint32_t> SetRates(const RatesStep& step) override;

  /// They come with the answer to that, and TakeValues() says that they are there.
  void AskForValues(Call* call) const;
  void TakeValues(const Answer& answer, std::uint64_t round);
  /// Those that nobody has pulled yet: Pull() asks for others.
  void DropValues() { fresh_ = false; }
  /// On each that is reached. False: this shard has that round.
  bool BeginApplyRound(const RoundGrant& grant, Deadline deadline);
  /// What a round takes: gradient slot 0.
  std::span<const float> staged_gradient() const { return gradients_[0].floats(); }

 private:
  void BeginUpdate(int slot, Deadline deadline, bool ahead);
  void BeginPull();
  void BeginPulls();
  /// `fill` fills in the call of one shard.
  template <typename Fill>
  void Begin(Kind kind, const Fill& fill);
  /// Begins a step that this worker makes on one shard after the other: whoever is asked for it
  /// first has the others begin theirs too.
  template <typename Fill>
  void BeginTogether(Kind kind, const Fill& fill);

  const std::shared_ptr<RemoteWorker> worker_;
  const int shard_;
  const bool alone_;  // the only one that is reached, with the lead: its steps are the lead's
  const std::size_t floats_;
  ShardRules rules_;  // of the mode that this worker goes by
  PageFloats values_[2];
  int current_ = 0;                    // the copy that the last Pull() returned
  bool fresh_ = false;                 // the other one has values that nobody has pulled yet
  bool ahead_ = false;                 // it is being written, by BeginApply()
  std::uint64_t round_ = 0;            // after which they are, in the modes with rounds
  Version version_ = 0;                // of those
  std::vector<PageFloats> gradients_;  // slots, and the addend where a quota exceeds 1
  int staged_ = 0;                     // gradients of this worker that are in slot 0
  std::unique_ptr<PageFloats> contents_;
  mutable bool initialized_ = false;
};

}  // namespace passel::fabric
