// shard_rules.h - the part of a plan that decides what a push does to a shard.

#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "store/mode.h"

namespace passel {

struct ShardRules {
  ModeSetting mode;  ///< in force now
  OptimizerConfig optimizer;
  int num_workers = 1;
  /// Changes of the mode that are planned.
  std::vector<ScheduledMode> schedule;

  bool rounds() const { return IsRoundMode(mode.mode); }
  bool bounded() const { return Has<&ModeTraits::bounded>(mode.mode); }
  bool binding() const { return Has<&ModeTraits::binding>(mode.mode); }

  /// R, round modes: gradients that make a round complete, at least 1; barrier: num_workers.
  int RoundSize() const { return mode.number != 0 ? mode.number : num_workers; }
  /// Round modes: so many gradients worker `worker` computes for one round. They add up to R, or,
  /// with backup workers (R < num_workers), to num_workers.
  int Quota(int worker) const {
    const int size = RoundSize();
    return size <= num_workers ? 1 : size / num_workers + (worker < size % num_workers ? 1 : 0);
  }
};

}  // namespace passel
