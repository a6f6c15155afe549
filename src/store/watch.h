// watch.h - who holds this worker up, and for how much of its own running time.
//
// Whoever has to wait says at each look for whom, and for what. What a member is silent for adds up
// over all looks, in however many calls the wait is made. A member that died is marked so, one that
// is silent beyond the stall limit is evicted (or as WaitOptions::on_stall has it).
//
// One per worker, used by its thread alone.

#pragma once

#include <cstdint>
#include <vector>

#include "base/own_time.h"
#include "base/status.h"
#include "store/lead.h"
#include "store/shard_memory.h"
#include "store/wait_options.h"

namespace passel {

class Watch {
 public:
  /// `memory` outlives it.
  Watch(const ShardMemory& memory, const WaitOptions& options);

  /// `members` hold up round, step (ssp) or change of mode `number`.
  void LookAfter(const std::vector<Member>& members, WaitingOn what, std::uint64_t number);
  /// Whoever holds `block` holds this worker up. Asks the kernel no more than every 10 ms.
  void LookAfterHolder(const BlockState& block);

  /// kInternal, naming whom, once somebody has stalled where OnStall::kFail says so.
  const Status& failure() const { return failure_; }

 private:
  struct Held {
    TaskState state;             // of whom
    std::uint64_t what = 0;      // WaitingOn and number, or the address of a block
    std::int64_t heartbeat = 0;  // the word at the last look: only that it changes tells something
    std::int64_t next_probe_ns = 0;
    OwnTime silent;
  };
  void Stalled(int worker, std::uint32_t epoch);
  void Look(int worker, TaskState state, std::uint64_t what, std::int64_t first_probe_in_ns);

  const ShardMemory memory_;
  const WaitOptions options_;
  const std::int64_t opened_ns_;
  std::vector<Held> held_;  // [num_workers]
  Status failure_;
};

}  // namespace passel
