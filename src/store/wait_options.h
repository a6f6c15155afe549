// wait_options.h - how a worker waits for its peers.

#pragma once

#include <chrono>

#include "cluster/worker_names.h"
#include "store/shard_memory.h"

namespace passel {

/// What becomes of a member that holds others up and does not answer.
enum class OnStall {
  kEvict,
  kWait,  ///< it is waited for, as long as it takes: for those who debug it
  kFail,  ///< whoever waits for it fails
};

struct WaitOptions {
  /// How long a wait for peers spins before it sleeps. About the expected waiting time; nearly
  /// nothing when there are more runnable tasks than cores.
  std::chrono::nanoseconds spin{200'000};
  /// A member that has held up a round or a block for so long, and was not heard of, stalls.
  std::chrono::nanoseconds stall_limit = std::chrono::minutes(10);
  OnStall on_stall = OnStall::kEvict;
  /// How others evict this worker.
  Eviction eviction = Eviction::kFence;
  /// How long a round waits for a worker that never joined.
  std::chrono::nanoseconds start_wait = std::chrono::minutes(5);
  /// For messages.
  WorkerNames names = {};
};

}  // namespace passel
