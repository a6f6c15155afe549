// shard_rules.h - the part of a plan that decides what a push does to a shard.

#pragma once

#include <vector>

#include "optim/optimizer.h"
#include "store/mode.h"

namespace passel {

struct ShardRules {
  Mode mode = Mode::kHogwild;
  OptimizerConfig optimizer;
  int num_workers = 1;
  /// R, round modes: gradients that make a round complete, at least 1; barrier: num_workers.
  int replicas_to_aggregate = 1;
  /// s, ssp: a worker begins a step when it has completed at most s more than the slowest.
  int staleness_bound = 0;
  /// Changes of the mode that are planned.
  std::vector<ScheduledMode> schedule;

  /// From now on. REQUIRES: num_workers is set.
  void Set(const ModeSetting& setting) {
    mode = setting.mode;
    replicas_to_aggregate =
        setting.replicas_to_aggregate != 0 ? setting.replicas_to_aggregate : num_workers;
    staleness_bound = setting.staleness_bound;
  }

  /// Round modes: so many gradients worker `worker` computes for one round. They add up to R, or,
  /// with backup workers (R < num_workers), to num_workers.
  int Quota(int worker) const {
    if (replicas_to_aggregate <= num_workers) return 1;
    return replicas_to_aggregate / num_workers +
           (worker < replicas_to_aggregate % num_workers ? 1 : 0);
  }
};

}  // namespace passel
