// shadow.h - of which steps the shadow is of values that live in the memory of a GPU.
//
// The values and slot variables in the arenas of the ps are then a copy (StorePlan::on_device),
// which whoever holds the claim of the lead's block 0 renews. A reader copies them meanwhile,
// floats of the old and of the new copy side by side, and learns between which global steps they
// all are:
//
//   reader   ShadowReader ... copy the values ... Steps()
//   writer   claim ... copy from the GPU ... PublishShadow(), or ShadowBrokeOff() ... release
//
// Whoever needs a newer one asks for it: WishForShadow(). The workers look between two steps.
//
// Threads    Any number of readers, one writer.

#pragma once

#include <cstdint>

#include "store/shard_memory.h"

namespace passel {

/// The writer, all shards copied: `before` and `after` are the global steps around that.
/// Memory order: release, of all that it wrote to the shadow.
void PublishShadow(const ShardMemory& lead, std::int64_t before, std::int64_t after);
/// The writer, which gave up on the way: some of the values are as late as `after`.
void ShadowBrokeOff(const ShardMemory& lead, std::int64_t after);

/// Has the shadow renewed, unless it has all updates up to global step `step` already.
void WishForShadow(const ShardMemory& lead, std::int64_t step);
/// True while that was not done. Costs two loads.
bool ShadowIsWanted(const ShardMemory& lead);
/// The values that the shadow has are no older than this step. Memory order: acquire, of them.
std::int64_t ShadowStep(const ShardMemory& lead);

struct ShadowSteps {
  std::int64_t first = 0, last = 0;  ///< no value is older than first, none newer than last
  std::int64_t age_ns = 0;  ///< of the shadow's newest whole copy; 0: still the first values
};

class ShadowReader {
 public:
  /// Before the values are copied.
  explicit ShadowReader(const ShardMemory& lead);
  /// Behind the copy. `global_step` was read behind it too. Memory order: acquire, also of the copy
  /// before.
  ShadowSteps Steps(std::int64_t global_step) const;

 private:
  const ShardMemory& lead_;
  const std::int64_t at_ns_;
  const std::int64_t step_;
};

}  // namespace passel
