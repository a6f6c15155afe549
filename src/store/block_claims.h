// block_claims.h - one word per block says who is writing it.
//
// Workers that all sweep the values from element 0 fall into step and fight for the same cache
// lines; two can then be slower than one. Workers that claim a block, skip the busy ones and come
// back to them later do not (measured: docs/memory-model.md). The claim names the task and its
// epoch, so that the claim of a task that died or was evicted can be taken over.

#pragma once

#include <chrono>
#include <cstdint>

#include "base/atomic_word.h"
#include "base/deadline.h"
#include "base/futex.h"
#include "store/membership.h"
#include "store/shard_memory.h"
#include "store/watch.h"

namespace passel {

/// Claims a free block. Memory order: acquire, paired with the release of the last holder; and who
/// sees something that is written to the block from here on sees the claim, or a later one.
inline bool TryClaim(BlockState& block, Claim mine) {
  std::uint64_t seen = block.claim.load(std::memory_order_relaxed);
  if (seen != 0 || !block.claim.compare_exchange_strong(
                       seen, mine.Pack(), std::memory_order_acquire, std::memory_order_relaxed)) {
    return false;
  }
  KeepStoresInOrder();
  return true;
}

/// Gives a block back; with `former` one that was taken over, to the one whose life is over: as if
/// it had not been. Memory order: release. A compare-and-swap, because a task that was evicted
/// meanwhile no longer owns what it claimed.
inline void ReleaseClaim(BlockState& block, Claim mine, std::uint64_t former = 0) {
  // Release: who sees this number sees what was written before it. The holder alone counts, so that
  // a load and a store will do.
  block.updates.store(block.updates.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  std::uint64_t seen = mine.Pack();
  block.claim.compare_exchange_strong(seen, former, std::memory_order_release,
                                      std::memory_order_relaxed);
}

/// False if the holder's life is over (dead, evicted, or a later epoch).
bool HolderLives(const ShardMemory& memory, Claim holder);

/// Claims a block whose holder's life is over (dead, evicted, or a later epoch). `former`, if not
/// null, gets the claim that was there. Memory order: acquire.
bool TryTakeOver(const ShardMemory& memory, BlockState& block, Claim mine, Claim* former = nullptr);

/// How a task idles while the blocks it still needs are held by others: spin, then yield, then
/// sleep, and have `watch` look after the holder.
class ClaimPatience {
 public:
  /// For a holder that goes on to other blocks.
  static constexpr std::chrono::nanoseconds kShortTurn{200};

  /// `watch` outlives it. `turn`: how long it leaves a block alone between two looks, while it
  /// spins. Whoever looks fetches lines that the holder needs again.
  explicit ClaimPatience(Watch& watch, std::chrono::nanoseconds turn = kShortTurn)
      : watch_(watch), turn_(turn) {}

  /// One round of waiting. `blocker` holds what we need. False once `deadline` has passed.
  bool Wait(const BlockState& blocker, Deadline deadline);

  /// How often it has lent its core to others, who may have been the holder.
  int yields() const { return yields_; }
  /// True once it sleeps: whoever holds the block is not just working on it.
  bool Sleeps() const { return yields_ > kYields; }

 private:
  // However many tasks there are for the cores.
  static constexpr std::chrono::nanoseconds kSpin{16'000};
  static constexpr int kYields = 448;

  Watch& watch_;
  const std::chrono::nanoseconds turn_;
  std::chrono::nanoseconds spun_{0};
  int yields_ = 0;
};

}  // namespace passel
