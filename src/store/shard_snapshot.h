// shard_snapshot.h - a copy of a shard while others train in it.
//
// Nothing is locked and nobody waits for the copy: it costs the training one reader of the values.
// Modes without rounds write while it reads, so such a copy is fuzzy: each float was stored at some
// time between beginning and end, different floats may be of different updates. Round modes leave
// the values alone between two rounds; there the copy is tried again, a few times, until no round
// fell into it, and is then exact.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"

namespace passel {

struct ShardSnapshotInfo {
  JobProgress::Shard progress;  ///< before the copy began
  /// Before and after the copy, as shard 0 knows it, else 0.
  std::int64_t global_step = 0, last_global_step = 0;
  /// Set if the floats are exactly those after this round.
  std::optional<std::uint64_t> exact_round;
  bool rounds = false;  ///< the mode that was in force has rounds: another copy may be exact
};

/// Copies the values into out[0] and, as far as `out` goes, slot variable k into out[1 + k], each
/// float[memory.floats]. `lead`: of shard 0. Takes as long as copying takes, and at most 50 ms
/// more. REQUIRES: the shard is initialised.
ShardSnapshotInfo TakeShardSnapshot(const ShardMemory& memory, bool lead,
                                    std::span<float* const> out);

struct ShardCopy : ShardSnapshotInfo {
  FileDescriptor values;  ///< float[memory.floats] in memory that nobody can change any more
};
/// The same, in memory of its own that can be handed out. Errors: kResourceExhausted, naming the
/// bytes needed, the bytes free and whose limit it is.
Result<ShardCopy> CopyShard(const ShardMemory& memory, bool lead, const MemoryBudget& budget);

/// What the job has beside its floats, at this moment. `shards[0]` leads. Relaxed: exact when
/// nobody trains meanwhile.
JobProgress ProgressOf(std::span<const ShardMemory> shards);

}  // namespace passel
