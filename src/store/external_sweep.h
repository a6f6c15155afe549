// external_sweep.h - values that live where only somebody else can update them (a GPU).
//
// A shard that was given an ExternalSweep leaves the update of the values to it. Everything else
// about a push stays with the shard: counters, optimizer step, version, liveness, patience with
// those who hold a block. The shard's own values and slot variables are then a shadow, which
// somebody refreshes.

#pragma once

#include "base/block_sweep.h"
#include "base/deadline.h"
#include "base/status.h"

namespace passel {

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

}  // namespace passel
