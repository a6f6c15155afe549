// lead.h - who takes part, rounds, clocks, mode, step and stop, as one worker reaches them: small
// messages, all with the ps of shard 0.
//
// A round over shards 0..P-1 goes like this, in every worker:
//   1. Stage(slot) on every shard       the gradient is in place
//   2. Arrive(round)
//   3. AwaitRound(round)                -> RoundGrant: who is counted
//   4. ApplyRound(grant) on every shard -> returns when all its blocks are done, by whomever
//   5. FinishRound(grant)               -> the next round may begin
// Every step may be repeated, by this worker or another one: a member that dies leaves nothing
// undone.
//
// A change of mode goes like this, in every worker, between two steps (store/mode_change.h):
//   1. ChangeDue()
//   2. AwaitChange()                    -> once all have arrived: the step at which it changes
//   3. PrepareChange(step) on every shard
//   4. PublishChange()
//   5. EnterMode(CurrentMode()) on the lead and on every shard

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

/// The decision of one round: whose gradients are averaged.
struct RoundGrant {
  std::uint64_t round = 0;
  int count = 0;  ///< members, at least 1; 0: the round is complete, the members are not known
  WorkerMask members{};
  std::uint32_t rates = 0;  ///< the set of RatesState that it takes; 0: none was set
  bool Counts(int worker) const {
    return members[static_cast<std::size_t>(worker) / 64] >> (worker % 64) & 1;
  }
};

/// What a worker waits for that others have to do first.
enum class WaitingOn { kRound = 1, kStep, kChange };

class Lead {
 public:
  virtual ~Lead() = default;

  // What is asked at each step. Over a wire: as of the last answer.

  /// kAborted if this worker's life was ended by others (evicted, or taken for dead).
  virtual Status CheckAlive() const = 0;
  virtual bool stopped() const = 0;
  virtual std::int64_t global_step() const = 0;
  virtual std::uint64_t completed_round() const = 0;
  /// The mode in force, and its number.
  virtual ModeWord CurrentMode() const = 0;
  /// True if this worker must not begin another step in the mode it goes by. Asks for the change
  /// itself if the schedule says so.
  virtual bool ChangeDue() = 0;
  /// ssp: steps that this worker is ahead of the slowest running one.
  virtual std::uint64_t ClockLead() const = 0;

  // --- Life ----------------------------------------------------------------------------------

  /// kDone or kLeft. Errors: kAborted.
  virtual Status Leave(Phase end) = 0;
  /// This worker's heartbeat, apart from those of the calls below.
  virtual void SayAlive() = 0;
  /// Over a wire: if it is not heard, it is said again with whatever is asked next, Leave() at the
  /// latest.
  virtual void Stop() = 0;
  virtual std::vector<Member> membership() const = 0;
  /// Members that hold up round or change of mode `number`; ssp: the next step, the slowest first.
  virtual std::vector<Member> Missing(WaitingOn what, std::uint64_t number) const = 0;
  /// This worker's record. Over a wire its own copy, which is published with each step.
  virtual WorkerCounters& counters() = 0;
  /// For the chief, before the shards are opened: global step, the mode that the schedule has by
  /// it, and each worker's clock, cursor and local steps, and shared batches (not over a
  /// wire). EnterMode() follows.
  virtual Status Restore(const JobProgress& progress) = 0;

  // --- Modes without rounds ------------------------------------------------------------------

  /// One update more, which all shards have; ssp: one step more of this worker. `*global_step` is
  /// the new one.
  virtual Status CountUpdate(std::int64_t* global_step) = 0;
  /// ssp: until this worker is at most the bound ahead of the slowest. Errors: kDeadlineExceeded,
  /// naming the slowest; kCancelled; kAborted.
  virtual Status AwaitSlowest(Deadline deadline) = 0;

  // --- Rounds --------------------------------------------------------------------------------

  virtual Result<bool> RoundDecided(std::uint64_t round) const = 0;
  virtual Status Arrive(std::uint64_t round) = 0;
  /// Errors: kDeadlineExceeded; kCancelled; kAborted.
  virtual Result<RoundGrant> AwaitRound(std::uint64_t round, Deadline deadline) = 0;
  virtual Status FinishRound(const RoundGrant& grant) = 0;
  /// Until that round is complete without us, or the job is stopped. True if it is.
  virtual bool AwaitCompletion(std::uint64_t round, Deadline deadline) = 0;
  /// After Stop(): no round is decided any more that has not been.
  virtual Status DecideNoMore() = 0;

  // --- A change of the mode ------------------------------------------------------------------

  /// This worker has ended its last step in the old mode. Returns the step at which the mode
  /// changes, for PrepareChange(), once all have; nothing if it has changed already. Errors:
  /// kDeadlineExceeded, naming who is missing; kCancelled; kAborted.
  virtual Result<std::optional<std::uint64_t>> AwaitChange(Deadline deadline) = 0;
  /// All shards are prepared. AwaitChange() says whether that did it: somebody may have joined.
  virtual Status PublishChange() = 0;
  /// This worker goes by that mode from now on. Errors: kDataLoss.
  virtual Status EnterMode(const ModeWord& mode) = 0;
};

}  // namespace passel
