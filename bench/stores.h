// stores.h - arenas and stores for benchmarks, and a shard that tries other ways to apply.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "shm/arena.h"
#include "store/in_process_store.h"
#include "store/local_shard.h"
#include "store/parameter_store.h"
#include "store/shard.h"
#include "store/store_plan.h"

namespace passel::bench {

/// One variable "w" of `elements` floats on one shard.
Result<StorePlan> FlatPlan(Mode mode, const std::string& optimizer, std::size_t elements,
                           int workers);

/// A published arena; fork()ed processes Adopt() its descriptor.
Result<shm::Arena> CreateArena(const StorePlan& plan);

/// Maps the arena once more, as a task that was handed the descriptor. For a forked child.
Result<shm::Arena> AdoptArena(int fd);

/// Fails unless the machine has `bytes` of memory free, and a quarter more.
Status CheckFreeMemory(std::size_t bytes);

/// How a shard applies gradients, other than the product does.
struct Sweep {
  enum class Claims { kNone, kAdvisory, kBinding };
  enum class Start { kZero, kOffset, kRandom };  // offset: blocks * worker / workers
  Claims claims = Claims::kAdvisory;
  Start start = Start::kRandom;
  int passes = 3;    ///< over busy blocks, before an advisory claim is ignored
  int pause = 0;     ///< pause instructions between two passes
  bool undo = true;  ///< rounds: save the old contents of a block first
};

/// The store of one worker on `memory`: the product's, but for `sweep`.
Result<std::unique_ptr<ParameterStore>> OpenVariantStore(const StorePlan& plan,
                                                         const ShardMemory& memory, int worker,
                                                         const EngineOptions& options,
                                                         const Sweep& sweep);

/// Spin as `passel train` does: long where every worker has a core.
EngineOptions EngineFor(int workers, int cores);

}  // namespace passel::bench
