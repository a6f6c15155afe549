// checkpoint_source.h - where the floats of a part come from, and what ends it before its time.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "job/checkpoint_part.h"
#include "store/shard_memory.h"

namespace passel::job {

/// Of the free memory, for a copy that could be done without.
inline constexpr double kShareForLiveCopy = 0.5;

struct SaveLimits {
  const std::atomic<bool>& quit;  ///< true: nobody wants it any more
  Deadline deadline;
  std::function<void()> alive = {};  ///< called for each block; may be empty

  /// Errors: kCancelled, kDeadlineExceeded.
  Status Check() const;
};

/// A shard that others may write: blocks are copied as they are asked for. `memory` is copied.
std::unique_ptr<PartSource> MakeLiveSource(const ShardMemory& memory);

/// Copies all of such a shard to `out`, its values and slot variables, each float[memory.floats].
/// By so many threads, this one among them, where there is enough to copy. Returns for each block
/// whether it may hold an update that is only half there. Errors: those of `limits`.
Result<std::vector<bool>> CopyLiveShard(const ShardMemory& memory, const std::vector<float*>& out,
                                        int threads, const SaveLimits& limits);

/// Looks at each block of `source`: values that are not finite are worth no checkpoint. Errors:
/// kDiverged for them; those of `limits` and of `source`.
std::unique_ptr<PartSource> MakeCheckedSource(std::unique_ptr<PartSource> source,
                                              const ShardMemory& shape, SaveLimits limits);

/// On a thread that gives way to those who train; without one, by this. Errors: those of `run`;
/// kResourceExhausted without memory.
Status RunGivingWay(const std::function<Status()>& run);

}  // namespace passel::job
