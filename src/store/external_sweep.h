// external_sweep.h - values that live where only somebody else can update them (a GPU).
//
// A shard that was given an ExternalSweep leaves the update of the values to it. Everything else
// about a push stays with the shard: counters, optimizer step, version, liveness, patience with
// those who hold a block. The shard's own values and slot variables are then a shadow, which
// somebody refreshes.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/deadline.h"
#include "base/status.h"
#include "optim/update_formulas.h"
#include "store/shard_memory.h"

namespace passel {

class ExternalSweep {
 public:
  virtual ~ExternalSweep() = default;

  struct Order {
    int slot = 0;  ///< which gradient
    StepScalars scalars{};
    Claim mine;
    /// false: lock-free additions to each float, for updates that are nothing else.
    bool claims = true;
    /// Claim::Pack() of a life that is over, whose blocks are taken over, where that can be; 0:
    /// none.
    std::uint64_t former = 0;
    std::size_t first_block = 0;
    bool goes_on = false;  ///< with the blocks that the last sweep of this push left
  };
  struct Outcome {
    std::uint64_t left = 0;        ///< blocks that others held all the while
    std::uint64_t taken_over = 0;  ///< blocks whose claim was `former`
    std::uint64_t holder = 0;      ///< Claim::Pack() of one that was left
  };

  /// True while this is where the values of the job are. Checked before each push.
  virtual bool Current() const = 0;
  /// One sweep over the blocks. Waits for no holder; memory order of what it did: release, of what
  /// it found: acquire. `deadline`: when whoever updates the values counts as lost, at least 5 s
  /// and at most 5 minutes from now. Errors: kUnavailable, and then for ever.
  virtual Result<Outcome> Sweep(const Order& order, Deadline deadline) = 0;
};

}  // namespace passel
