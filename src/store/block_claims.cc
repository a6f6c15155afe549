#include "store/block_claims.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace passel {

bool HolderLives(const ShardMemory& memory, Claim holder) {
  if (holder.worker < 0 || holder.worker >= memory.num_workers) return false;
  return StateOf(memory, holder.worker) == TaskState{holder.epoch, Phase::kRunning};
}

bool TryTakeOver(const ShardMemory& memory, BlockState& block, Claim mine, Claim* former) {
  std::uint64_t seen = block.claim.load(std::memory_order_acquire);
  if (seen == 0 || HolderLives(memory, Claim::Unpack(seen))) return false;
  if (former != nullptr) *former = Claim::Unpack(seen);
  return block.claim.compare_exchange_strong(seen, mine.Pack(), std::memory_order_acquire,
                                             std::memory_order_relaxed);
}

bool ClaimPatience::Wait(const BlockState& blocker, Deadline deadline) {
  ++turns_;
  if (turns_ <= kSpins) {  // a block takes about a microsecond
    for (int i = 0; i < 8; ++i) SpinPause();
    return true;
  }
  if (!Sleeps()) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  watch_.LookAfterHolder(blocker);
  return !deadline.Expired();
}

}  // namespace passel
