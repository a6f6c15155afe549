#include "store/block_claims.h"

#include <sched.h>

#include <chrono>
#include <thread>

namespace passel {
namespace {

// Touches nothing that others write. Also ends where the clock stands still (tests).
void SpinFor(std::chrono::nanoseconds time) {
  const Deadline end = Deadline::After(time);
  for (int i = 0; i < 1000 && !end.Expired(); ++i) SpinPause();
}

}  // namespace

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
  if (spun_ < kSpin) {
    spun_ += turn_;
    SpinFor(turn_);
    return true;
  }
  ++yields_;
  if (!Sleeps()) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  watch_.LookAfterHolder(blocker);
  return !deadline.Expired();
}

}  // namespace passel
