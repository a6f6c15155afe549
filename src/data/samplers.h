// samplers.h - which examples make up a worker's next batch.
//
// Samplers hand out indices and never touch an image. What they hand out is a function of
// (seed, worker, position) alone, so the position, two integers that fit into shared memory, is
// all that has to survive a killed worker: its next life restores it and goes on with the very
// batch that would have come.
//
// Each worker draws from the whole training set in an order of its own, as the reference programs
// do. With num_shards > 1 it draws only from the examples i with i mod num_shards == shard.
//
// Threads    One sampler per thread.
// Memory     4 bytes per example of the shard; nothing is allocated after the constructor.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace passel {

struct SamplerOptions {
  std::uint32_t num_examples = 0;  ///< of the whole training set; may be 0
  std::uint64_t seed = 0;          ///< of the job
  std::uint32_t worker = 0;        ///< its task index
  std::uint32_t num_shards = 1;    ///< at least 1
  std::uint32_t shard = 0;         ///< < num_shards

  /// Examples that this worker draws from.
  std::uint32_t ShardSize() const;
};

/// The epoch rule of the reference programs' next_batch: every example once per epoch, in a new
/// order each epoch. A batch may straddle two epochs. The epoch counter moves with the batch that
/// needs an example of the next epoch: when a batch ends exactly with an epoch, that is the next
/// call. A batch larger than the training set comes out short: at most the rest of one epoch and
/// one whole epoch.
class NextBatchSampler {
 public:
  /// Where a sampler stands.
  struct Cursor {
    std::uint64_t epochs_completed = 0;
    std::uint64_t index = 0;  ///< examples handed out of the current epoch
    friend bool operator==(const Cursor&, const Cursor&) = default;
  };

  /// Without `shuffle` every epoch runs in file order.
  explicit NextBatchSampler(const SamplerOptions& options, bool shuffle = true);

  /// Fills the front of `out` with example numbers; returns how many. Fewer than out.size() only
  /// if out.size() > ShardSize().
  std::size_t Next(std::span<std::uint32_t> out);

  std::uint64_t epochs_completed() const { return cursor_.epochs_completed; }
  Cursor cursor() const { return cursor_; }
  /// Goes on as if the batches up to `cursor` had just been handed out. Any value is safe: an index
  /// past the end means the end of its epoch.
  void Restore(Cursor cursor) { cursor_ = cursor; }

 private:
  /// Makes order_ the one of `epoch`, if it is not.
  void OrderFor(std::uint64_t epoch);

  SamplerOptions options_;
  bool shuffle_;
  Cursor cursor_;
  std::vector<std::uint32_t> order_;  // example numbers, in the order of ordered_epoch_
  std::uint64_t ordered_epoch_ = 0;
  bool ordered_ = false;
};

/// Independent batches, each drawn uniformly without replacement (no epochs): numpy's
/// random.choice(num_examples, batch_size, replace=False). Costs O(batch size) per batch.
class RandomBatchSampler {
 public:
  /// Errors: kInvalidArgument unless 1 <= batch_size <= ShardSize().
  static Result<RandomBatchSampler> Create(const SamplerOptions& options, std::uint32_t batch_size);

  /// Fills `out` with distinct example numbers. REQUIRES: out.size() == batch_size.
  void Next(std::span<std::uint32_t> out);

  /// Batches handed out so far.
  std::uint64_t cursor() const { return batches_; }
  void Restore(std::uint64_t cursor) { batches_ = cursor; }

 private:
  RandomBatchSampler(const SamplerOptions& options, std::uint32_t batch_size);
  SamplerOptions options_;
  std::uint64_t batches_ = 0;
  std::vector<std::uint32_t> pool_;     // all example numbers, in file order between calls
  std::vector<std::uint32_t> swapped_;  // (batch_size) places that the current batch came from
};

}  // namespace passel
