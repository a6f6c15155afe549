// parameter_store.h - the one interface a trainer speaks to shared parameters.
//
// A store owns named float32 variables and applies the optimizer to them. A worker looks at the
// values through a ParamView, computes a gradient into memory the store lent it, and pushes it.
// What carries this (this process, an arena, several of them) cannot be told from here: every
// store must pass tests/store_conformance.h.
//
// Threads    One ParameterStore per worker and thread; any number, in any number of processes, may
//            be open on the same variables. Stop() and the const functions may be called from any
//            thread.
// Errors     Returned, never thrown. After kUnavailable (a peer died) or kAborted (this task was
//            evicted) Leave() and open the store anew: retrying cannot help.
// Waits      Only WaitUntilInitialized(), Push() and Wait() block, and never beyond their deadline.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "store/mode.h"
#include "store/shard_memory.h"
#include "store/variable_table.h"

namespace passel {

/// Updates applied to a shard since creation: starts at 0, never decreases.
using Version = std::uint64_t;

enum class PullMode {
  kView,  ///< the shared values themselves; in the async modes others change them meanwhile
  kCopy,  ///< a private copy, so that forward and backward pass see one set of values
};

/// Current values, without a copy where memory is shared. Valid until the store's next Pull();
/// holding one blocks nobody.
/// Async modes: not a snapshot; one element may already hold a later update than its neighbour.
/// Round modes: between two rounds every element is exactly `version()`. A worker that rounds do
/// not wait for (`replicas` with R < N) may pull while one is applied; what it computes on that is
/// always dropped.
class ParamView {
 public:
  ParamView() = default;
  ParamView(const float* const* values, const VariableTable* table, Version version,
            std::uint32_t stamp)
      : values_(values), table_(table), version_(version), stamp_(stamp) {}

  /// float32, row-major in the variable's shape, 64-byte aligned.
  std::span<const float> values(VarId id) const { return {values_[id], (*table_)[id].elements}; }
  /// The version of shard 0, when it was pulled.
  Version version() const { return version_; }
  /// Names the versions of all shards at this pull. For Push(); the last eight pulls are known.
  std::uint32_t stamp() const { return stamp_; }

 private:
  const float* const* values_ = nullptr;
  const VariableTable* table_ = nullptr;
  Version version_ = 0;
  std::uint32_t stamp_ = 0;
};

/// Memory for one gradient, lent by the store: the worker's slot in the arena, or registered
/// memory. A cheap handle; the memory stays the store's.
class GradientBuffer {
 public:
  /// The slot of memory that is not the store's.
  static constexpr int kCallers = -1;

  GradientBuffer() = default;
  GradientBuffer(float* const* values, const VariableTable* table, int slot)
      : values_(values), table_(table), slot_(slot) {}
  /// float32, laid out like the variable. Contents are unspecified: overwrite, do not add.
  std::span<float> values(VarId id) const { return {values_[id], (*table_)[id].elements}; }
  int slot() const { return slot_; }

 private:
  float* const* values_ = nullptr;
  const VariableTable* table_ = nullptr;
  int slot_ = kCallers;
};

/// What became of one gradient.
struct PushOutcome {
  bool applied = false;          ///< false: it came too late for its round
  Version version = 0;           ///< of shard 0, after this update
  std::int64_t global_step = 0;  ///< this update's own number, counted from 1
  std::uint64_t staleness = 0;   ///< updates between its pull and its apply; the largest shard's
  /// So many gradients of this worker share this fate. 1, but in `replicas` with several per worker
  /// and round: 0 (and applied) for those that wait in its sum, then all of them with the last.
  int gradients = 1;
};

/// The wait handle of one push.
struct Ticket {
  std::uint64_t id = 0;
};

struct Member {
  int worker = 0;
  Phase phase = Phase::kExpected;
  std::uint32_t epoch = 0;
  std::int32_t pid = 0;
  std::uint64_t local_steps = 0;
  std::int64_t heartbeat_age_ns = 0;  ///< since its last push or wait; 0 if it never joined
};

/// What a job has beside its values and slot variables, at one time.
struct JobProgress {
  struct Worker {
    std::uint64_t clock = 0;                            ///< steps that it had completed (ssp)
    std::uint64_t cursor_epochs = 0, cursor_index = 0;  ///< of its batch sampler
    std::uint64_t local_steps = 0;                      ///< batches of all its lives
  };
  struct Shard {
    Version version = 0;
    std::int64_t optimizer_step = 0;  ///< of Adam's powers
  };
  /// Of data that all workers share (store/shared_batches.h).
  struct Batches {
    BatchRules rules;
    std::uint64_t next = 0;           ///< the first that nobody was given
    std::vector<std::uint64_t> open;  ///< of those before it, what is not done; rising
  };
  std::int64_t global_step = 0;
  std::vector<Worker> workers;
  std::vector<Shard> shards;
  Batches batches;
  std::vector<GroupRates> rates;  ///< in force, of each group; empty: none were set
};

class ExternalSweep;  // store/external_sweep.h

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  virtual const VariableTable& variables() const = 0;
  /// The mode in force. It changes in Wait() and WaitUntilInitialized() only.
  virtual Mode mode() const = 0;
  /// Changes of the mode that this store went along with since it was opened. Gradient buffers that
  /// were lent before the last one are void.
  virtual std::uint32_t mode_changes() const = 0;
  virtual int worker() const = 0;

  // --- Life --------------------------------------------------------------------------------

  /// Writes the first values: `fill` gets each variable in turn. Slot variables get their initial
  /// values. Opens the store to everyone who waits below. For the chief, once; a chief that comes
  /// back finds initialized(), leaves the values alone and waits below like everyone else.
  /// Errors: kFailedPrecondition when the store is initialised already.
  virtual Status Initialize(const std::function<void(VarId, std::span<float>)>& fill) = 0;
  /// In its place: goes on where a job of the same variables and optimizer was. `fill` gets each
  /// variable (0) and its slot variables (1 + k) in turn. Global step, versions and the step of
  /// the optimizer are those of `progress`; so are cursors and local steps, of as many workers as
  /// both jobs have; rates, if any were set, are in force again; ssp: all begin at the highest
  /// clock there was; rounds go on after the global step. Where the schedule has another mode by
  /// that step, the job is in that one from the start. Errors: kFailedPrecondition as above;
  /// kInvalidArgument when `progress` has other shards.
  virtual Status Restore(const JobProgress& progress,
                         const std::function<void(VarId, int k, std::span<float>)>& fill) = 0;
  virtual bool initialized() const = 0;
  /// Round modes: also finishes the round that members may have left half applied when they died.
  /// `ssp`: also until the slowest worker is near enough. While the mode changes: until it has.
  /// Errors: kDeadlineExceeded; kCancelled after Stop().
  virtual Status WaitUntilInitialized(Deadline deadline) = 0;
  /// This worker is done: rounds no longer wait for it. The store is closed.
  virtual Status Leave() = 0;
  /// The same, but it is not done, and may come back: the job has not finished with this.
  virtual Status LeaveForNow() = 0;

  // --- One step ----------------------------------------------------------------------------

  /// Costs nothing where memory is shared and `mode` is kView.
  /// Errors: kCancelled after Stop(), and in the modes with rounds the values change no more then;
  /// kAborted when evicted; kFailedPrecondition before Initialize() or
  /// WaitUntilInitialized() returned OK.
  virtual Result<ParamView> Pull(PullMode mode) = 0;
  /// The values as they are now, after Stop() too: to save or to evaluate, no push follows. In the
  /// modes without rounds others may still write what is viewed. Errors: those of the transport.
  virtual Result<ParamView> PullLast() = 0;

  /// Yours until it is pushed.
  virtual GradientBuffer LendGradient() = 0;
  /// In its place, memory of the caller's: values[id] is that of a variable, and is read until
  /// Push() has returned. Copied to lent memory where others read it: in rounds, and for values
  /// elsewhere.
  virtual GradientBuffer UseGradient(const float* const* values) = 0;
  /// False if any element is NaN or infinite; its variable is named in `*variable` if not null.
  virtual bool GradientIsFinite(const GradientBuffer& gradient, std::string* variable) const = 0;

  /// Hands in dL/dw, computed on the values of the pull `stamp`. The buffer returns to the store.
  /// Async modes: applied when this returns. Round modes: arrives; Wait() finishes the round.
  /// `replicas`: dropped at once, with all that belong to it, if a round was completed since its
  /// pull; added to this worker's sum until there are as many as a round takes from it.
  /// Errors: kDeadlineExceeded (locked mode: a live task held a block all the while; what was not
  /// applied is given up); kAborted; kCancelled.
  virtual Result<Ticket> Push(const GradientBuffer& gradient, std::uint32_t stamp,
                              Deadline deadline) = 0;

  /// Memory order: acquire. After OK this thread sees the applied update. `ssp`: returns when the
  /// slowest worker is at most the bound behind. Except in `hogwild` and `locked`, the caller must
  /// wait for each push before the next one. A step ends here: while the job changes its mode, this
  /// returns when every worker has ended its last step in the old mode. The next step is in the new
  /// one, and the buffers lent before are void. So a worker that never waits holds a change up.
  /// Errors: kDeadlineExceeded (the push stands, call again); kAborted; kCancelled after Stop().
  virtual Result<PushOutcome> Wait(Ticket ticket, Deadline deadline) = 0;

  // A push in two halves, for a step that computes a gradient and makes the update in one go: it
  // begins before the step is started and ends when that is done. In between lies no other push.

  /// True if a push now is nothing but lock-free additions of `-rate * gradient`, to values that
  /// are elsewhere (SweepElsewhere()): plain SGD in `hogwild` and `ssp`. May change with the mode.
  virtual bool UpdateIsAddition() const = 0;
  /// The first half: after OK the update may be made, once, with `*rate`. REQUIRES:
  /// UpdateIsAddition(). Errors: kAborted, and then nothing was begun.
  virtual Status BeginUpdate(float* rate) = 0;
  /// The second half, of an update that is made, of a gradient of the pull `stamp`: counts, and
  /// goes on, as Push() does; Wait() follows. Errors: kAborted, when evicted meanwhile.
  virtual Result<Ticket> EndUpdate(std::uint32_t stamp) = 0;
  /// Call this instead of EndUpdate() if the update may have been made only in part or not at all.
  /// It counts as half applied, and not as a step.
  virtual void GiveUpUpdate() = 0;

  /// Before a push: where the data of this worker goes on behind it. Becomes its cursor
  /// (WorkerCounters) with the step that the push is, before anybody who meets can see that.
  virtual void SayCursor(std::uint64_t epochs, std::uint64_t index) = 0;

  /// `count` is called with each step that a push of this worker is, on its thread, before anybody
  /// who meets can see that; of gradients that go into one sum, with the last one.
  virtual void OnStep(std::function<void()> count) = 0;

  /// For the chief, between two steps: from now on group g of the variables has rates[g], in every
  /// update that begins, and in every round that is decided, after this has returned; a round has
  /// one set of rates for all of its values. They outlive this worker and the ps, and are in
  /// checkpoints. Errors: kFailedPrecondition on another worker, and for parameters in GPU memory;
  /// kInvalidArgument, and nothing is changed; those of the transport, after which either may hold.
  virtual Status SetRates(std::span<const GroupRates> rates) = 0;

  /// For a worker that pushes nothing for long: others take one that holds them up and is silent
  /// beyond the stall limit for stopped.
  virtual void SayAlive() = 0;

  /// From now on sweeps[s], which outlives the store, updates the values of shard s, and what views
  /// show is a shadow. For modes without rounds. REQUIRES: a sweep for each shard.
  virtual void SweepElsewhere(std::span<ExternalSweep* const> sweeps) = 0;

  // --- The job -----------------------------------------------------------------------------

  /// Updates applied: one per gradient in the async modes, one per round in the round modes.
  virtual std::int64_t global_step() const = 0;
  /// Asks every worker to leave after its current step. Never undone.
  virtual void Stop() = 0;
  virtual bool stopped() const = 0;
  virtual std::vector<Member> membership() const = 0;
  /// Workers that a push of this store is waiting for at this moment, for log lines.
  virtual std::vector<Member> WaitingFor() const = 0;
  /// This worker's counters, in shared memory.
  virtual WorkerCounters& counters() = 0;
};

}  // namespace passel
