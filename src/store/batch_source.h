// batch_source.h - where a worker gets the numbers of its batches: the memory of the job
// (store/shared_batches.h), or a ps on another host (job/remote_batches.h).
//
// Threads    One at a time.

#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"

namespace passel {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// The number of a batch that this worker holds from now on; nothing: all are given out, and it
  /// holds none any more. With kHeldBatches of them the one that was given first counts as done.
  /// Errors: kAborted if its life was ended by others; those of the transport.
  virtual Result<std::optional<std::uint64_t>> Next() = 0;
  /// After Next() gave nothing: a worker that still has one of them, which comes back if that dies;
  /// nothing: all are done.
  virtual std::optional<int> StillHeldBy() = 0;
  /// A step was counted: all that it holds is done.
  virtual void Done() = 0;
  /// The worker leaves: whoever asks knows what it has done.
  virtual void End() {}
};

}  // namespace passel
