// shadow_copy.h - what a checkpoint has of values that live in the memory of a GPU: a copy of their
// shadow (store/shadow.h), values and slot variables, which a worker renews between two steps when
// it is asked to.
//
//   AwaitShadow   until the shadow has all updates up to a step
//   ShadowCopy    of what it holds then, and maybe of what a later renewal puts there meanwhile
//
// A renewal reads one array after the other while others push, so that a block of values need not
// belong to its slot variables, unless one worker trains alone.
//
// Threads    One at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "job/checkpoint_part.h"
#include "job/checkpoint_source.h"
#include "store/shard_buffer.h"
#include "store/shard_memory.h"

namespace passel::job {

/// Has the workers renew the shadow, and waits for it. Returns `step`; or the step of the shadow,
/// if no worker is left that could and that is less. `check` is called often. Errors: its own;
/// kDeadlineExceeded. Memory order: acquire, of the shadow.
Result<std::int64_t> AwaitShadow(const ShardMemory& lead, std::int64_t step,
                                 const std::function<Status()>& check, Deadline deadline);

/// True if all workers have left as they should, and the shadow has all that they did.
bool ShadowIsLast(const ShardMemory& lead);

class ShadowCopy {
 public:
  /// `shards`, the lead's first, outlive it.
  explicit ShadowCopy(std::span<const ShardMemory> shards) : shards_(shards) {}

  /// Before SourceOf(). Without memory for it the shadow itself is what is saved.
  void Copy();
  /// When it was copied, and up to which step it goes; nothing: it was not.
  const std::optional<CopyEnd>& end() const { return end_; }
  /// Of one shard; the copy outlives it.
  std::unique_ptr<PartSource> SourceOf(std::size_t shard) const;

 private:
  const std::span<const ShardMemory> shards_;
  std::vector<ShardBuffer> buffers_;  // [shards], or none
  std::optional<CopyEnd> end_;
  bool mixed_ = true;
};

}  // namespace passel::job
