// rates.h - learning rates and weight decays that change while a job trains.
//
// The chief sets those of all groups at once. A round has the rates that were in force when it was
// decided, whoever applies which block of it; another update those that were when it began. Until
// any are set the OptimizerConfig of the plan says them. The sets are in RatesState
// (store/shard_memory.h), of which two may be in use: the one in force and, until it is complete,
// that of the round that was decided last.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "optim/optimizer.h"
#include "store/shard_memory.h"

namespace passel {

/// A set that no update takes, and none will before UseRates(). For the lead's shard.
std::uint32_t NextRates(const ShardMemory& lead);

/// REQUIRES: 1 <= set <= RatesState::kSets, rates.size() == memory.num_groups.
void WriteRates(const ShardMemory& memory, std::uint32_t set, std::span<const GroupRates> rates);

/// From now on updates begin, and rounds are decided, with that set. Memory order: release.
void UseRates(const ShardMemory& memory, std::uint32_t set);

/// Of one group. Relaxed: the set was written before it was named. REQUIRES: `set` as above.
inline GroupRates ReadRates(const ShardMemory& memory, std::uint32_t set, int group) {
  const RatesState::Words& words = memory.state->rates.sets[(set - 1) % RatesState::kSets][group];
  return {words.learning_rate.load(std::memory_order_relaxed),
          words.weight_decay.load(std::memory_order_relaxed)};
}

/// Those in force, of each group; empty: none were set.
std::vector<GroupRates> RatesNow(const ShardMemory& memory);

/// kFailedPrecondition: another worker than 0 wants to.
Status OnlyTheChiefSetsRates();

}  // namespace passel
