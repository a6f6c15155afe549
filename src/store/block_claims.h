// block_claims.h - one word per block says who is writing it.
//
// Workers that all sweep the values from element 0 fall into step and fight for the same cache
// lines; two can then be slower than one. Workers that claim a block, skip the busy ones and come
// back to them later do not (measured: docs/memory-model.md). The claim names the task and its
// epoch, so that the claim of a task that died or was evicted can be taken over.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/futex.h"
#include "store/membership.h"
#include "store/shard_memory.h"

namespace passel {

/// Claims a free block. Memory order: acquire, paired with the release of the last holder.
inline bool TryClaim(BlockState& block, Claim mine) {
  std::uint64_t seen = block.claim.load(std::memory_order_relaxed);
  return seen == 0 && block.claim.compare_exchange_strong(
                          seen, mine.Pack(), std::memory_order_acquire, std::memory_order_relaxed);
}

/// Gives a block back. Memory order: release. A compare-and-swap, because a task that was evicted
/// meanwhile no longer owns what it claimed.
inline void ReleaseClaim(BlockState& block, Claim mine) {
  std::uint64_t seen = mine.Pack();
  block.claim.compare_exchange_strong(seen, 0, std::memory_order_release,
                                      std::memory_order_relaxed);
}

/// False if the holder's life is over (dead, evicted, or a later epoch).
bool HolderLives(const ShardMemory& memory, Claim holder);

/// Claims a block whose holder's life is over (dead, evicted, or a later epoch). `former`, if not
/// null, gets the claim that was there. Memory order: acquire.
bool TryTakeOver(const ShardMemory& memory, BlockState& block, Claim mine, Claim* former = nullptr);

/// Gives a block that was taken over back to the one whose life is over: as if it had not been.
/// Memory order: release.
inline void HandBackClaim(BlockState& block, Claim mine, Claim former) {
  std::uint64_t seen = mine.Pack();
  block.claim.compare_exchange_strong(seen, former.Pack(), std::memory_order_release,
                                      std::memory_order_relaxed);
}

/// How a task idles while the blocks it still needs are held by others: spin, then yield, then
/// sleep; asks the kernel after dead holders every 10 ms; evicts a holder that has not been heard
/// of for `stall_limit` and has held the same block up for as long.
class ClaimPatience {
 public:
  /// `memory` outlives it.
  ClaimPatience(const ShardMemory& memory, std::int64_t stall_limit_ns)
      : memory_(memory), stall_limit_ns_(stall_limit_ns) {}

  /// One round of waiting. `blocker` holds what we need. False once `deadline` has passed.
  bool Wait(const BlockState& blocker, Deadline deadline);

  /// Only looks, no more than every 10 ms, whether the holder of `blocker` is dead or has to be
  /// evicted; waits for nothing. For who does without the block.
  void LookAfter(const BlockState& blocker) { Probe(blocker, MonotonicNs()); }

  /// True once it sleeps: whoever holds the block is not just working on it.
  bool Sleeps() const { return turns_ > kSpins + kYields; }

 private:
  static constexpr int kSpins = 64;
  static constexpr int kYields = 448;

  void Probe(const BlockState& blocker, std::int64_t now);

  const ShardMemory& memory_;
  const std::int64_t stall_limit_ns_;
  int turns_ = 0;
  std::int64_t next_probe_ns_ = 0;
  const BlockState* blocker_ = nullptr;  // at the last probe
  std::uint64_t holder_ = 0;             // its claim then
  std::int64_t held_since_ns_ = 0;       // the first probe that found both
};

}  // namespace passel
