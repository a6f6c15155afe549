// external_updates.h - what a shard can do, beside Shard, whose values somebody else updates (a
// GPU): see external_sweep.h.

#pragma once

#include "base/status.h"
#include "store/parameter_store.h"

namespace passel {

class ExternalSweep;
struct StepScalars;  // optim/update_formulas.h

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
