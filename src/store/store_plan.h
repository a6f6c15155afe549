// store_plan.h - everything that decides the shape of a store: what the chief proposes and every
// other task must agree with.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "optim/optimizer.h"
#include "store/mode.h"
#include "store/shard_memory.h"
#include "store/shard_rules.h"
#include "store/variable_table.h"

namespace passel {

struct StorePlan {
  ModeSetting mode;  ///< at first: it may change while the job runs
  /// Changes of the mode that are planned: rising steps, at most kMaxScheduledModes.
  std::vector<ScheduledMode> schedule;
  OptimizerConfig optimizer;
  /// The values live in the memory of a GPU (DeviceState); what the shards hold is their shadow.
  /// For modes without rounds.
  bool on_device = false;
  int num_workers = 1;              ///< places for workers, 1 to kMaxWorkers
  int spare_workers = 0;            ///< of them, the last ones: for workers that may join later
  int gradient_slots = 1;           ///< per worker, 1 to kMaxGradientSlots
  std::size_t block_floats = 2048;  ///< floats per claim; a multiple of 16
  VariableTable variables;

  /// Errors: kInvalidArgument with the limit, the value and the fix.
  Status Validate() const;
  /// Whether a job of this plan can be in that mode. Errors: kInvalidArgument.
  Status CheckMode(const ModeSetting& setting) const;
  /// The hash of ToJson(): equal plans, equal hashes, on any machine.
  std::uint64_t Hash() const;
  /// Under the first mode.
  ShardRules Rules() const;

  /// The sizes of one shard's memory, which is nowhere yet.
  ShardMemory ShapeOf(int shard) const;
  std::size_t NumBlocks(int shard) const {
    return (variables.ShardFloats(shard) + block_floats - 1) / block_floats;
  }
};

/// For the way from the chief to the ps. Equal plans, equal text.
std::string ToJson(const StorePlan& plan);
/// Errors: kInvalidArgument for anything that ToJson() would not write.
Result<StorePlan> PlanFromJson(const std::string& text);

/// The first setting in which two plans differ, for a person: "mode is ssp here and locked there".
/// REQUIRES: they do.
std::string FirstDifference(const StorePlan& mine, const StorePlan& theirs);

}  // namespace passel
