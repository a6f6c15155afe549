// shard_copy.h - a ps copies the values of its shard while others train in it.
//
// Nothing is locked and nobody waits for the copy: it costs the training one reader of the values.
// Lock-free modes write while it reads, so such a copy is fuzzy: each float was stored at some
// time between beginning and end, different floats may be of different updates. Round modes leave
// the values alone between two rounds; there the copy is tried again, a few times, until no round
// fell into it, and is then exact.

#pragma once

#include <cstdint>
#include <optional>

#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "shm/arena.h"

namespace passel::shm {

struct ShardCopy {
  FileDescriptor values;  ///< float[floats], sealed against any change
  std::int64_t global_step_before = 0, global_step_after = 0;  ///< as shard 0 knows it, else 0
  /// Set if the values are exactly those after this round.
  std::optional<std::uint64_t> exact_round;
  bool rounds = false;  ///< the mode that was in force has rounds: another copy may be exact
};

/// Takes as long as copying takes, and at most 50 ms more. REQUIRES: the shard is initialised.
/// Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit it is.
Result<ShardCopy> CopyShard(const Arena& arena, const MemoryBudget& budget);

}  // namespace passel::shm
