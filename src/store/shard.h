// shard.h - one ps task's part of the variables, as one worker reaches it: the bulk of the data.
//
// Together with Lead (store/lead.h) this is all that a carrier implements. On shared memory both
// are views of an arena; over a wire each call is one message that may be repeated, and what they
// ask at each step comes with the answer that brings the values.

#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "base/status.h"
#include "store/lead.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

class ExternalUpdates;  // store/external_sweep.h

/// What a shard is opened with. Those of Initialize() are the defaults.
struct ShardStart {
  /// The same for all shards of one Initialize() or Restore(), and of no other.
  std::uint64_t cohort = 0;
  Version version = 0;              ///< updates applied so far
  std::int64_t optimizer_step = 0;  ///< of Adam's powers
  std::uint64_t round = 0;          ///< the last one that is applied
  /// The slot variables were written too; else they get their first values.
  bool with_slots = false;
};

/// The values at one pull.
struct PulledShard {
  const float* values = nullptr;  ///< padding included
  Version version = 0;
  /// True: nobody else sees this memory, and it stays as it is until the next Pull().
  bool own = false;
  /// A copy, in the modes with rounds: the last round that is in all of it. A view has all that are
  /// complete.
  std::uint64_t round = std::numeric_limits<std::uint64_t>::max();
};

/// Rates are written into a set of RatesState that no update takes, on all shards, before any takes
/// it: so a round finds them on all, or on none.
struct RatesStep {
  std::uint32_t set = 0;  ///< 1 to RatesState::kSets; 0, on the lead's shard: a free one
  bool write = false;     ///< writes `rates` there
  bool use = false;       ///< then: updates that begin, and rounds that are decided, take that set
  std::vector<GroupRates> rates;
};

/// Of a gradient in memory that is not the shard's: floats [begin, end) of it are at `values`.
struct GradientPart {
  std::size_t begin = 0, end = 0;
  int group = 0;
  const float* values = nullptr;
};

class Shard {
 public:
  virtual ~Shard() = default;

  /// Brings what the next step reads up to date: a view where memory is shared.
  virtual Status Pull(PulledShard* pulled) = 0;
  /// All of them into out[0, floats): each float is one that was stored. After Pull().
  virtual void CopyAll(float* out) = 0;
  /// Memory of gradient slot `slot`, float[floats]. Slot gradient_slots() is a private buffer,
  /// there where a round takes several gradients of this worker: Stage() adds it to slot 0.
  virtual float* gradient(int slot) const = 0;
  virtual int gradient_slots() const = 0;

  /// For the chief, before Open(): memory of the values (0) and of slot variable k (1 + k), to be
  /// written in place, float[floats].
  virtual float* contents(int k) = 0;
  /// What was written to contents() is what the shard has. Opens it to everyone.
  virtual Status Open(const ShardStart& start) = 0;
  virtual bool initialized() const = 0;
  virtual Status WaitUntilInitialized(Deadline deadline) = 0;
  /// This life of the worker is over. kDone or kLeft. On the lead's shard nothing.
  virtual void Leave(Phase end) = 0;
  /// Ends waits for blocks here. Lead::Stop() is the word that counts.
  virtual void Stop() = 0;

  /// This worker goes by that mode from now on, as Lead::EnterMode() said. Errors:
  /// kResourceExhausted.
  virtual Status EnterMode(const ModeWord& mode) = 0;
  /// Rounds, if the next mode has any, go on after `step`.
  virtual Status PrepareChange(std::uint64_t step) = 0;

  /// Before Apply() of the same, which then need not wait for all of it; meanwhile Pull() returns
  /// what there is. A carrier that has nothing to wait for does nothing.
  virtual void BeginApply(int /*slot*/, Deadline /*deadline*/) {}
  /// Async modes: applies the gradient at once. `*version_before` is set on success.
  virtual Status Apply(int slot, Deadline deadline, Version* version_before) = 0;

  /// Apply() with a gradient in parts, one behind the other. REQUIRES: TakesParts().
  virtual Status ApplyParts(std::span<const GradientPart> parts, Deadline deadline,
                            Version* version_before);
  virtual bool TakesParts() const { return false; }

  /// Round modes: the gradient is in place.
  virtual Status Stage(int slot) = 0;
  /// Returns when all blocks have the round, by whomever.
  virtual Status ApplyRound(const RoundGrant& grant, Deadline deadline) = 0;
  /// Members that hold blocks which `round` has not been applied to.
  virtual std::vector<Member> HoldersIn(std::uint64_t round) const = 0;

  /// For the chief: what ParameterStore::SetRates() does on one shard. Returns the set that it was
  /// about. May be repeated. Errors: kFailedPrecondition; kInvalidArgument; kAborted.
  virtual Result<std::uint32_t> SetRates(const RatesStep& step) = 0;

  /// For updates that are made elsewhere than in this shard's memory. Null: this carrier has none.
  virtual ExternalUpdates* external_updates() { return nullptr; }
};

inline Status Shard::ApplyParts(std::span<const GradientPart> /*parts*/, Deadline /*deadline*/,
                                Version* /*version_before*/) {
  PASSEL_CHECK(TakesParts(), "this carrier takes gradients from its slots");
  return {};
}

}  // namespace passel
