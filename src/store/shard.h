// shard.h - one ps task's part of the variables, as one worker reaches it.
//
// ShardedStore makes one ParameterStore of several of these. Shard 0 is the lead: it alone counts
// global steps, decides rounds and knows the members; the others follow its round number.
//
// A round over shards 0..P-1 goes like this, in every worker:
//   1. Stage(slot) on every shard       the gradient is in place
//   2. Arrive(round) on the lead
//   3. AwaitRound(round) on the lead    -> RoundGrant: who is counted
//   4. ApplyRound(grant) on every shard -> returns when all its blocks are done, by whomever
//   5. FinishRound(grant) on the lead   -> the next round may begin
// Every step may be repeated by another worker: a member that dies leaves nothing undone.
//
// A change of mode goes like this, in every worker, between two steps (store/mode_change.h):
//   1. ChangeDue() on the lead
//   2. ArriveAtChange() on the lead
//   3. AwaitChange() on the lead, which calls PrepareChange() on every shard once all have arrived
//   4. EnterMode(CurrentMode() of the lead) on every shard

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

class ExternalSweep;  // store/external_sweep.h
struct StepScalars;   // optim/update_formulas.h

/// The decision of one round: whose gradients are averaged.
struct RoundGrant {
  std::uint64_t round = 0;
  int count = 0;  ///< members, at least 1
  WorkerMask members{};
  bool Counts(int worker) const {
    return members[static_cast<std::size_t>(worker) / 64] >> (worker % 64) & 1;
  }
};

class Shard {
 public:
  virtual ~Shard() = default;

  /// Current values of the shard, padding included; a view or, after Refresh(), a replica.
  virtual const float* values() const = 0;
  /// All of them into out[0, floats): each float is one that was stored.
  virtual void CopyAll(float* out) = 0;
  /// Memory of gradient slot `slot`. Slot gradient_slots() is a private buffer, there where a round
  /// takes several gradients of this worker: Stage() adds it to slot 0.
  virtual float* gradient(int slot) const = 0;
  virtual int gradient_slots() const = 0;
  virtual Version version() const = 0;

  /// For the chief, before Open(): memory of the values to be written in place.
  virtual float* values_for_initialization() = 0;
  /// Sets the slot variables to their first values and opens the shard. `cohort` is the same for
  /// all shards of one Initialize().
  virtual Status Open(std::uint64_t cohort) = 0;
  virtual bool initialized() const = 0;
  virtual Status WaitUntilInitialized(Deadline deadline) = 0;
  /// kDone or kLeft.
  virtual Status Leave(Phase end) = 0;
  /// kAborted if this worker's life was ended by others (evicted, or taken for dead).
  virtual Status CheckAlive() const = 0;

  /// This worker's heartbeat, apart from those of the calls below.
  virtual void SayAlive() = 0;  // lead

  /// Async modes: applies the gradient at once. `*version_before` is set on success.
  virtual Status Apply(int slot, Deadline deadline, Version* version_before) = 0;

  /// True if an update now is nothing but additions that `-rate * gradient` says, made elsewhere.
  virtual bool AddsElsewhere() const = 0;
  /// Async modes: Apply() in two halves, for an update that somebody else makes between them.
  /// `*scalars` is set on success. Errors: kAborted, and then nothing was begun.
  virtual Status BeginUpdate(StepScalars* scalars) = 0;
  /// The update is made: `*version_before` is set. Errors: kAborted, and it counts all the same.
  virtual Status EndUpdate(Version* version_before) = 0;
  /// It may have been made in part, or not at all: counted as half applied.
  virtual void GiveUpUpdate() = 0;

  /// Async modes: from now on `sweep`, which outlives the shard, updates the values in place of
  /// this.
  virtual void SweepElsewhere(ExternalSweep* sweep) = 0;

  /// ssp: one more step is completed.
  virtual void CompleteStep() = 0;  // lead
  /// ssp: until this worker is at most the bound ahead of the slowest. Errors: kDeadlineExceeded,
  /// naming the slowest; kCancelled; kAborted.
  virtual Status AwaitSlowest(Deadline deadline) = 0;  // lead
  /// ssp: steps that this worker is ahead of the slowest running one.
  virtual std::uint64_t ClockLead() const = 0;  // lead

  /// The mode in force, and its number.
  virtual ModeWord CurrentMode() const = 0;  // lead
  /// This worker goes by that mode from now on. Errors: kResourceExhausted; kDataLoss.
  virtual Status EnterMode(const ModeWord& mode) = 0;
  /// True if this worker must not begin another step in the mode it goes by. Asks for the change
  /// itself if the schedule says so.
  virtual bool ChangeDue() = 0;         // lead
  virtual Status ArriveAtChange() = 0;  // lead
  /// Until the mode has changed. Errors: kDeadlineExceeded, naming who is missing; kCancelled;
  /// kAborted.
  virtual Status AwaitChange(Deadline deadline,
                             const std::function<void(std::uint64_t)>& prepare_all) = 0;  // lead
  /// Rounds, if the next mode has any, go on after `step`.
  virtual void PrepareChange(std::uint64_t step) = 0;
  /// Members that have not arrived at the change.
  virtual std::vector<Member> MissingAtChange() const = 0;  // lead

  virtual Status Stage(int slot) = 0;
  virtual std::uint64_t completed_round() const = 0;                                  // lead
  virtual bool RoundDecided(std::uint64_t round) const = 0;                           // lead
  virtual Status Arrive(std::uint64_t round) = 0;                                     // lead
  virtual Result<RoundGrant> AwaitRound(std::uint64_t round, Deadline deadline) = 0;  // lead
  /// After Stop(): no round is decided any more that has not been.
  virtual void DecideNoMore() = 0;  // lead
  virtual Status ApplyRound(const RoundGrant& grant, Deadline deadline) = 0;
  virtual void FinishRound(const RoundGrant& grant) = 0;
  /// Until that round is complete without us, or the job is stopped. True if it is.
  virtual bool AwaitCompletion(std::uint64_t round, Deadline deadline) = 0;  // lead

  virtual std::int64_t global_step() const = 0;        // lead
  virtual std::int64_t IncrementGlobalStep() = 0;      // lead; returns the new value
  virtual void Stop() = 0;                             // lead
  virtual bool stopped() const = 0;                    // lead
  virtual std::vector<Member> membership() const = 0;  // lead
  /// Members that have not arrived in `round`.
  virtual std::vector<Member> MissingIn(std::uint64_t round) const = 0;  // lead
  /// Members that hold blocks which `round` has not been applied to.
  virtual std::vector<Member> HoldersIn(std::uint64_t round) const = 0;
  /// ssp: members that hold this worker up, the slowest first.
  virtual std::vector<Member> TooFarBehind() const = 0;  // lead
  virtual WorkerCounters& counters() = 0;
};

}  // namespace passel
