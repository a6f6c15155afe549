// external_sweep.h - values that live where only somebody else can update them (a GPU), and what a
// shard of such values can do beside Shard.
//
// A shard that was given an ExternalSweep leaves the update of the values to it. Everything else
// about a push stays with the shard: counters, optimizer step, version, liveness, patience with
// those who hold a block. The shard's own values and slot variables are then a shadow, which
// somebody refreshes.

#pragma once

#include "base/block_sweep.h"
#include "base/deadline.h"
#include "base/status.h"
#include "store/parameter_store.h"

namespace passel {

struct StepScalars;  // optim/update_formulas.h

class ExternalSweep {
 public:
  virtual ~ExternalSweep() = default;

  /// True while this is where the values of the job are. Checked before each push.
  virtual bool Current() const = 0;
  /// One sweep over the blocks. Waits for no holder; memory order of what it did: release, of what
  /// it found: acquire. `deadline`: when whoever updates the values counts as lost, at least 5 s
  /// and at most 5 minutes from now. Errors: kUnavailable, and then for ever.
  virtual Result<BlocksSwept> Sweep(const BlockSweep& sweep, Deadline deadline) = 0;
};

class ExternalUpdates {
 public:
  virtual ~ExternalUpdates() = default;

  /// Modes without rounds: from now on `sweep`, which outlives the shard, updates the values in
  /// place of this.
  virtual void SweepElsewhere(ExternalSweep* sweep) = 0;
  /// True if an update now is nothing but additions that `-rate * gradient` says, made elsewhere.
  virtual bool AddsElsewhere() const = 0;
  /// Apply() in two halves, for an update that somebody else makes between them. `*scalars` is set
  /// on success. Errors: kAborted, and then nothing was begun.
  virtual Status BeginUpdate(StepScalars* scalars) = 0;
  /// The update is made: `*version_before` is set. Errors: kAborted, and it counts all the same.
  virtual Status EndUpdate(Version* version_before) = 0;
  /// It may have been made in part, or not at all: counted as half applied.
  virtual void GiveUpUpdate() = 0;
};

}  // namespace passel
