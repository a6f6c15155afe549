// arenas.h - arenas for benchmarks: one variable, published, adopted by each process.

#pragma once

#include <cstddef>
#include <string>

#include "base/memory_file.h"
#include "base/status.h"
#include "shm/arena.h"
#include "store/local_shard.h"
#include "store/store_plan.h"

namespace passel::lab {

/// One variable "w" of `elements` floats on one shard.
Result<StorePlan> FlatPlan(Mode mode, const std::string& optimizer, std::size_t elements,
                           int workers);

/// A published arena; fork()ed processes Adopt() its descriptor.
Result<shm::Arena> CreateArena(const StorePlan& plan, HugePages huge_pages = HugePages::kOff);
/// Whether huge pages hold it.
bool HugePagesInEffect(const shm::Arena& arena);

/// Maps the arena once more, as a task that was handed the descriptor. For a forked child.
Result<shm::Arena> AdoptArena(int fd);

/// Fails unless the machine has `bytes` of memory free, and a quarter more.
Status CheckFreeMemory(std::size_t bytes);

/// Spin as `passel train` does: long where every worker has a core.
WaitOptions EngineFor(int workers, int cores);

}  // namespace passel::lab
