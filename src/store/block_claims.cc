#include "store/block_claims.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace passel {

namespace {

constexpr std::int64_t kProbeEveryNs = 10'000'000;

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

void ClaimPatience::Probe(const BlockState& blocker, std::int64_t now) {
  if (next_probe_ns_ == 0) next_probe_ns_ = now + kProbeEveryNs;
  if (now < next_probe_ns_) return;
  next_probe_ns_ = now + kProbeEveryNs;
  const std::uint64_t word = blocker.claim.load(std::memory_order_acquire);
  const Claim holder = Claim::Unpack(word);
  if (blocker_ != &blocker || holder_ != word) {
    blocker_ = &blocker;
    holder_ = word;
    held_since_ns_ = now;
  }
  if (word != 0 && HolderLives(memory_, holder)) {
    const TaskSlot& task = memory_.tasks[holder.worker];
    if (ProbeLiveness(LoadIdentity(task)) == Liveness::kDead) {
      MarkDead(memory_, holder.worker, holder.epoch);
    } else if (now - std::max(held_since_ns_, task.heartbeat_ns.load(std::memory_order_relaxed)) >
               stall_limit_ns_) {
      // An old heartbeat alone proves nothing: the holder may have been waiting itself until now.
      Evict(memory_, holder.worker, holder.epoch);
    }
  }
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
  const std::int64_t now = MonotonicNs();
  Probe(blocker, now);
  return now < deadline.at_ns();
}

}  // namespace passel
