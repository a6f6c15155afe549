// shard_saver.h - what a ps does for the one that saves, where ps are on several hosts: it copies
// its shard and writes it as a part. ps/0 asks for that (job/other_parts.h), by the errands of
// job/remote_errand.h.
//
//   save_begin    memory for a copy; "live" makes the copy, "settled" needs none
//   save_copy     the copy, while all workers meet
//   save_write    the part, to this task's --checkpoint_dir
//   save_forget   what was begun ends, and leaves nothing
//
// Threads    Any; Answer() waits until the errand before it is done.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "job/checkpoint_source.h"
#include "job/remote_errand.h"
#include "shm/arena.h"
#include "store/shard_buffer.h"
#include "store/shard_memory.h"

namespace passel::job {

/// How a shard gets into its part.
enum class PartCopy { kMet, kLive, kSettled };
std::string_view PartCopyName(PartCopy how);

/// What its values are, if nobody writes them.
struct PartState {
  bool claimed = false;                ///< somebody is in the middle of a block, or has died there
  std::optional<std::uint64_t> round;  ///< they are those after this round
};
PartState StateOfPart(const ShardMemory& shard, bool lead);

class ShardSaver {
 public:
  /// `folder`: --checkpoint_dir, "": none.
  ShardSaver(int shard, std::string folder) : shard_(shard), folder_(std::move(folder)) {}

  /// `arena`: what the shard is in now; null: nothing. Errors: kFailedPrecondition for values of
  /// another Initialize(), without a folder, and for errands out of their order; those of
  /// MakeShardBuffers() and WritePart(); kCancelled.
  Result<Errand> Answer(const Errand& errand, const std::shared_ptr<const shm::Arena>& arena);
  /// What is under way is not wanted any more. Does not wait for its end.
  void Cancel();
  /// A save has begun, and is neither written nor forgotten.
  bool busy() const { return busy_.load(std::memory_order_acquire); }

 private:
  struct Save {
    PartCopy how = PartCopy::kLive;
    std::shared_ptr<const shm::Arena> arena;
    JobProgress progress;
    std::vector<ShardBuffer> copy;  // one, or none: the shard is read as it is
    std::vector<bool> mixed;
  };

  Result<Errand> Begin(const Json& question, const std::shared_ptr<const shm::Arena>& arena);
  Result<Errand> Copy();
  Result<Errand> Write(const Errand& errand);
  Status CopyLive();
  Errand Tell() const;
  SaveLimits Limits() const;

  const int shard_;
  const std::string folder_;
  std::atomic<bool> quit_{false}, busy_{false};
  std::mutex mutex_;
  std::optional<Save> save_;
};

}  // namespace passel::job
