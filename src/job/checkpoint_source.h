// checkpoint_source.h - where the floats of a part come from, and what ends it before its time.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "job/checkpoint_part.h"
#include "store/shard_buffer.h"
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

/// When all was copied.
struct CopyEnd {
  std::int64_t ns = 0;    ///< MonotonicNs()
  std::int64_t step = 0;  ///< global
};

/// Such a shard, of which a thread of its own makes a copy while the begin of it is written
/// already: the checkpoint is of the time that copying takes, not of that which the disk takes.
/// `memory`, and `lead`, which has the global step, are copied; null: it is on another host, and
/// the part does not say up to which step it goes. `end` is set before EndOfPieces() returns.
/// Errors of CheckPiece(): those of `limits`, whose `alive` it calls while it waits.
std::unique_ptr<PartSource> MakeLiveCopy(const ShardMemory& memory, const ShardMemory* lead,
                                         ShardBuffer buffer, const SaveLimits& limits,
                                         CopyEnd* end);

/// Looks at each block of `source`: values that are not finite are worth no checkpoint. Errors:
/// kDiverged for them; those of `limits` and of `source`.
std::unique_ptr<PartSource> MakeCheckedSource(std::unique_ptr<PartSource> source,
                                              const ShardMemory& shape, SaveLimits limits);

/// On a thread that gives way to those who train; without one, by this. Errors: those of `run`;
/// kResourceExhausted without memory.
Status RunGivingWay(const std::function<Status()>& run);

}  // namespace passel::job
