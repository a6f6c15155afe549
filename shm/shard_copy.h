// shard_copy.h - a ps copies the values of its shard while others train in it.
//
// Nothing is locked and nobody waits for the copy: it costs the training one reader of the values.
// Lock-free modes write while it reads, so such a copy is fuzzy: each float was stored at some
// time between beginning and end, different floats may be of different updates. Round modes leave
// the values alone between two rounds; there the copy is tried again, a few times, until no round
// fell into it, and is then exact.

#pragma once

#include "base/memory_file.h"
#include "base/status.h"
#include "shm/arena.h"
#include "shm/protocol.h"

namespace passel::shm {

/// Fills in the values, the steps as this shard knows them, and what is said of rounds. Takes as
/// long as copying takes, and at most 50 ms more. REQUIRES: the shard is initialised.
/// Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit it is.
Result<ShardSnapshot> CopyShard(const Arena& arena, const MemoryBudget& budget);

}  // namespace passel::shm
