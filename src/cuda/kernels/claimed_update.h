// claimed_update.h - the optimizer's update of values in device memory that several processes
// update at the same time, block by block: whoever writes a block has claimed it.
//
//   claim word   0: free, else the holder (Claim::Pack() of store/shard_memory.h), 128 bytes apart
//   a launch     one group of threads per block: claim, update, release. A block that others hold
//                all the while is left, and the report says how many were and who held one.
//   a push       as many launches as it takes; what an earlier launch of it has done is not done
//                again.
//
// No launch waits for long: processes on one GPU may take turns, and a holder that waits for its
// turn must get it. Whether a holder is dead is not for a kernel to know. The host looks, and names
// in the next launch the claim that may be taken over.
//
// Memory order: claims are taken with acquire and released with release, at the scope that holds
// every process of the arena (kernels/atomics.h).

#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernel.h"
#include "cuda/kernels/atomics.h"
#include "cuda/kernels/update.h"

namespace passel::cuda {

/// What the host tells one launch.
struct alignas(64) PushOrder {
  std::uint64_t number = 0;  ///< of the launch, comes back in PushReport::number; from 1
  std::uint64_t push = 0;    ///< of the push that it belongs to; from 1
  std::uint64_t claim = 0;   ///< ours
  std::uint64_t former = 0;  ///< may be taken over; 0: none
  std::uint32_t first_block = 0;
  std::uint32_t tries = 0;  ///< for each block, at least 1
  StepScalars scalars{};
};

/// What comes of it. In pinned host memory; everything else is valid once `number` is that of the
/// launch, read with an acquire.
struct alignas(64) PushReport {
  std::uint64_t left = 0;        ///< blocks that others held
  std::uint64_t taken_over = 0;  ///< blocks whose claim was PushOrder::former
  std::uint64_t holder = 0;      ///< the claim of one that was left; 0: none was
  std::uint64_t number = 0;
};

/// A claim word, alone on its line pair.
struct alignas(128) BlockClaim {
  std::uint64_t word = 0;
};

/// What a launch did with a block; larger numbers are the claim that was in the way. (The smallest
/// claim is 1 << 16.)
inline constexpr std::uint64_t kBlockDone = 0;
inline constexpr std::uint64_t kBlockTakenOver = 1;

/// Between two tries.
PASSEL_KERNEL void PauseInKernel() {
#if defined(__CUDA_ARCH__)
  __nanosleep(400);  // a block of 2048 floats takes about a microsecond
#endif
}

template <typename Rule, Scope kOfClaims = Scope::kGpu>
struct ClaimedUpdate {
  static constexpr unsigned kThreads = 256;
  static constexpr Scope kScope = kOfClaims;
  static constexpr int kSlots = Rule::kSlots;

  const PushOrder* order = nullptr;  ///< device memory, as all below
  float* values = nullptr;           ///< this and slots, gradient: (count), 16-byte aligned
  float* slots[kSlots == 0 ? 1 : kSlots] = {};
  const float* gradient = nullptr;
  BlockClaim* claims = nullptr;      ///< (blocks), shared with others
  std::uint64_t* done = nullptr;     ///< (blocks): the last push that this process applied there
  std::uint64_t* outcome = nullptr;  ///< (blocks): of this launch
  std::size_t count = 0;
  std::uint32_t block_floats = 0;  ///< a multiple of 4
  std::uint32_t blocks = 0;

  struct Shared {
    std::uint32_t claimed;  ///< tests kill a process after phase 0 has set it
  };
  struct Private {};
  Grid grid() const { return {blocks, 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 3; }

  PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private&) const {
    const std::uint32_t turned = at.block_x + order->first_block;
    const std::uint32_t block = turned < blocks ? turned : turned - blocks;
    if (phase == 0) {
      if (at.thread == 0) shared.claimed = TakeClaim(block) ? 1 : 0;
      return;
    }
    if (shared.claimed == 0) return;
    if (phase == 1) {
      const std::size_t begin = std::size_t{block} * block_floats;
      const std::size_t end = begin + block_floats < count ? begin + block_floats : count;
      const Rule rule(order->scalars);
      for (std::size_t i = begin + std::size_t{4} * at.thread; i < end; i += 4 * kThreads) {
        UpdateFour(rule, values, slots, gradient, i, end);
      }
    } else if (at.thread == 0) {
      done[block] = order->push;
      // A compare-and-swap: who was taken for dead meanwhile no longer owns what it claimed.
      ExchangeIfEqual<kScope>(&claims[block].word, order->claim, 0);
    }
  }

 private:
  PASSEL_KERNEL bool TakeClaim(std::uint32_t block) const {
    outcome[block] = kBlockDone;
    if (done[block] == order->push) return false;
    std::uint64_t* const word = &claims[block].word;
    std::uint64_t seen = 0;
    for (std::uint32_t turn = 0; turn < order->tries; ++turn) {
      if (turn > 0) PauseInKernel();
      seen = ExchangeIfEqual<kScope>(word, 0, order->claim);
      if (seen == 0) return true;
      if (seen == order->former && ExchangeIfEqual<kScope>(word, seen, order->claim) == seen) {
        outcome[block] = kBlockTakenOver;
        return true;
      }
    }
    outcome[block] = seen;
    return false;
  }
};

/// Counts the outcomes of a launch and signals.
struct PushReportKernel {
  static constexpr unsigned kThreads = 256;

  const std::uint64_t* outcome = nullptr;  ///< (blocks), device memory; null: none is ever left
  std::uint32_t blocks = 0;
  const PushOrder* order = nullptr;  ///< device memory
  PushReport* report = nullptr;      ///< pinned host memory

  struct Shared {
    std::uint64_t left[kThreads], taken_over[kThreads], holder[kThreads];
  };
  struct Private {};
  Grid grid() const { return {1, 1, kThreads}; }
  PASSEL_KERNEL unsigned phases() const { return 2; }

  PASSEL_KERNEL void Phase(unsigned phase, ThreadPlace at, Shared& shared, Private&) const {
    if (phase == 0) {
      std::uint64_t left = 0, taken_over = 0, holder = 0;
      for (std::uint32_t b = at.thread; outcome != nullptr && b < blocks; b += kThreads) {
        const std::uint64_t of_block = outcome[b];
        taken_over += of_block == kBlockTakenOver ? 1 : 0;
        if (of_block > kBlockTakenOver) {
          ++left;
          holder = of_block;
        }
      }
      shared.left[at.thread] = left;
      shared.taken_over[at.thread] = taken_over;
      shared.holder[at.thread] = holder;
    } else if (at.thread == 0) {
      std::uint64_t left = 0, taken_over = 0, holder = 0;
      for (unsigned i = 0; i < kThreads; ++i) {
        left += shared.left[i];
        taken_over += shared.taken_over[i];
        if (shared.holder[i] != 0) holder = shared.holder[i];
      }
      report->left = left;
      report->taken_over = taken_over;
      report->holder = holder;
      StoreReleaseSystem(&report->number, order->number);
    }
  }
};

}  // namespace passel::cuda
