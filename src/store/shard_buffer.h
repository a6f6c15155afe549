// shard_buffer.h - memory for copies of whole shards, and copying into it by several threads.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "store/shard_memory.h"

namespace passel {

/// What a shard holds, in order: its values, then its slot variables, each float[memory.floats].
std::vector<const float*> ContentsOf(const ShardMemory& memory);
/// Their size; without `slots` that of the values alone. Of a shape (StorePlan::ShapeOf()), too.
std::uint64_t ContentsBytes(const ShardMemory& memory, bool slots = true);

/// Memory of its own for the contents of one shard, or for the first of them. Move-only.
class ShardBuffer {
 public:
  const std::vector<float*>& contents() const { return contents_; }
  /// The same, for who only reads.
  std::vector<const float*> read() const { return {contents_.begin(), contents_.end()}; }
  /// The first `floats` of each content, at least as many as before, are not needed any more: their
  /// memory goes back, and what they hold then is unspecified. Beside whoever uses the rest.
  void GiveBack(std::size_t floats);

 private:
  friend Result<std::vector<ShardBuffer>> MakeShardBuffers(std::span<const ShardMemory> shards,
                                                           bool slots, double share, bool touch);
  struct Unmap {
    std::size_t bytes;
    void operator()(float* memory) const;
  };
  std::unique_ptr<float, Unmap> memory_;
  std::vector<float*> contents_;
  std::size_t given_back_ = 0;  // floats of each
};

/// One for each shard, without `slots` for its values alone. With `touch` all of it is touched, so
/// that who waits for the copy does not wait for that. Takes `share` of the memory that is free at
/// most. Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit it is.
Result<std::vector<ShardBuffer>> MakeShardBuffers(std::span<const ShardMemory> shards, bool slots,
                                                  double share = 1, bool touch = true);

/// How often CopyShards() calls `between`, unless a thread is kept from its core.
inline constexpr std::chrono::milliseconds kBetweenCopies{100};

/// Copies the contents of shards[s] to out[s], as many as that has: each float is one that was
/// stored, and they may be of different updates unless nobody writes. By `threads` threads, this
/// one among them, where there is enough to copy; by fewer if no more can be had. `between` is
/// called by this thread. Memory order: acquire.
void CopyShards(std::span<const ShardMemory> shards, std::span<const std::vector<float*>> out,
                int threads, const std::function<void()>& between = {});

/// A thread for each core that this process may use, as far as memory is the faster for it.
int CopyThreads();

}  // namespace passel
