// batch_state.h - the words through which the workers of a job share the batches of their data
// (store/shared_batches.h). They are part of what store/shard_memory.h describes.

#pragma once

#include <atomic>
#include <cstdint>

namespace passel {

/// Batches that one worker holds at most.
inline constexpr int kHeldBatches = 8;

/// How data are cut into batches, which all workers do alike.
struct BatchRules {
  std::uint64_t examples = 0;  ///< 0: nothing is shared
  std::uint64_t batch_size = 0;
  std::uint64_t order = 0;  ///< 0: 0, 1, 2, ...; else 1 + the seed of another one in each epoch
  bool operator==(const BatchRules&) const = default;
};

/// (lead) Batches are numbered through all epochs.
struct BatchState {
  /// BatchRules, each plus one: the first one said counts. 0: nobody has said it.
  alignas(128) std::atomic<std::uint64_t> examples;
  std::atomic<std::uint64_t> batch_size, order;
  std::atomic<std::uint64_t> next;   // the first that nobody was given
  std::atomic<std::uint64_t> moves;  // raised before a held batch leaves a place for another
  // Those that were held when the checkpoint was made that the job began with: number plus one; 0:
  // somebody holds it again.
  std::atomic<std::uint32_t> num_returned;
  std::atomic<std::uint64_t> returned[kHeldBatches * 256];
};

}  // namespace passel
