// shard_copy.h - a ps copies the values of its shard, as store/shard_snapshot.h has it, into memory
// that it can hand out.

#pragma once

#include "base/file_descriptor.h"
#include "base/memory_file.h"
#include "base/status.h"
#include "shm/arena.h"
#include "store/shard_snapshot.h"

namespace passel::shm {

struct ShardCopy : ShardSnapshotInfo {
  FileDescriptor values;  ///< float[floats], sealed against any change
};

/// REQUIRES: the shard is initialised.
/// Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit it is.
Result<ShardCopy> CopyShard(const Arena& arena, const MemoryBudget& budget);

}  // namespace passel::shm
