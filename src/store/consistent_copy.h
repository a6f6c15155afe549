// consistent_copy.h - a copy of all shards after one step, in any mode: everyone waits between two
// steps (store/meeting.h) until it is made.
//
// What it costs is known: nobody waits for longer than `gathering` and `held` together, and all
// wait for `held`, the time of copying alone, which several threads share.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "cluster/worker_names.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

struct MeetingCost {
  std::chrono::nanoseconds gathering{0};  ///< from the call until the last one had come
  std::chrono::nanoseconds held{0};       ///< from then on until they were let go
};

struct ConsistentCopy {
  std::int64_t global_step = 0;
  JobProgress progress;  ///< at that step
  MeetingCost cost;
};

struct ConsistentCopyOptions {
  WorkerNames names = {};
  int threads = 1;                          ///< that copy; CopyThreads()
  const std::atomic<bool>* quit = nullptr;  ///< true: it is not wanted any more
  /// Called once all have met at global step `step`, before anything is copied. It calls `between`
  /// every second at least, and ends with its error. May be empty.
  using Between = std::function<Status()>;
  std::function<Status(std::int64_t step, const Between& between)> before_copy = {};
  /// Copies of other shards, of the same step, by other processes: begun once all have met, and
  /// awaited before they go on. That calls `between` every second at least, and ends with its
  /// error. Both or none.
  std::function<Status()> begin_others = {};
  std::function<Status(const Between& between)> await_others = {};
};

/// Copies the contents of shards[s] to out[s], as far as that goes (store/shard_buffer.h), which
/// was touched. Waits until others have met, or the mode has changed, and no longer than the
/// deadline for workers to come. Errors: those of Meeting; kCancelled.
Result<ConsistentCopy> CopyInMeeting(std::span<const ShardMemory> shards,
                                     std::span<const std::vector<float*>> out,
                                     const ConsistentCopyOptions& options, Deadline deadline);

}  // namespace passel
