// shard_copy.h - a ps copies the values of its shard while others train in it, as
// store/shard_snapshot.h has it, into memory that it can hand out.

#pragma once

#include "base/memory_file.h"
#include "base/status.h"
#include "shm/arena.h"
#include "shm/protocol.h"

namespace passel::shm {

/// Fills in the values and what TakeShardSnapshot() says. REQUIRES: the shard is initialised.
/// Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit it is.
Result<ShardSnapshot> CopyShard(const Arena& arena, const MemoryBudget& budget);

}  // namespace passel::shm
