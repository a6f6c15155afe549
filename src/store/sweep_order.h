// sweep_order.h - in which order a worker passes over the blocks of a shard.
//
// One pass goes up, the next one comes back: what a pass touched last is still in this core's
// caches, and the next one finds it there. (Passes that all go up find nothing as soon as the
// shard is larger than the cache: what comes first is what was evicted longest ago.) Going down,
// the groups of kGroup blocks descend, but within a group the blocks ascend, as the processor
// prefetches.
//
//   worker 1 of 2, eight blocks, groups of two     up    4 5 6 7 0 1 2 3
//                                                  down  2 3 0 1 6 7 4 5
//
// Workers begin at different blocks, so that they do not sweep side by side from the start.

#pragma once

#include <algorithm>
#include <cstddef>

namespace passel {

class SweepOrder {
 public:
  static constexpr std::size_t kGroup = 16;  // 128 KiB of blocks of 2,048 floats

  /// For worker `worker` of `num_workers`. REQUIRES: 0 <= worker < num_workers.
  SweepOrder(std::size_t blocks, int worker, int num_workers)
      : blocks_(blocks),
        first_(blocks * static_cast<std::size_t>(worker) / static_cast<std::size_t>(num_workers)) {}

  /// visit(begin, end) for ranges of blocks that together are all of them, each once: one pass.
  template <typename Visit>
  void Pass(Visit&& visit) {
    const std::size_t groups = (blocks_ + kGroup - 1) / kGroup;
    for (std::size_t i = 0; i < groups; ++i) VisitGroup(up_ ? i : groups - 1 - i, visit);
    up_ = !up_;
  }

 private:
  // Behind the last block comes block 0.
  template <typename Visit>
  void VisitGroup(std::size_t group, Visit& visit) const {
    const std::size_t begin = first_ + group * kGroup;
    const std::size_t end = first_ + std::min(blocks_, (group + 1) * kGroup);
    if (begin < std::min(end, blocks_)) visit(begin, std::min(end, blocks_));
    if (end > blocks_) visit(std::max(begin, blocks_) - blocks_, end - blocks_);
  }

  const std::size_t blocks_;
  const std::size_t first_;
  bool up_ = true;  // the next pass
};

}  // namespace passel
