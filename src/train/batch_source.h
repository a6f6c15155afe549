// batch_source.h - which examples a worker draws, batch after batch.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/samplers.h"
#include "store/shard_memory.h"
#include "train/hook.h"
#include "train/worker_loop.h"

namespace passel {

/// Either sampler of data/samplers.h behind one pair of calls.
class BatchSource {
 public:
  /// Where it stands: two integers, kept in the store's counters so that the next life of a worker
  /// goes on there.
  using Cursor = NextBatchSampler::Cursor;

  /// Goes on where `counters` say. Errors: kInvalidArgument for a batch that is larger than what
  /// this worker draws from.
  static Result<BatchSource> Make(const WorkerOptions& options, std::size_t train_examples,
                                  const WorkerCounters& counters, int worker);

  /// `feed` has the last word on each batch from now on. May be empty.
  void SetFeed(FeedFunction feed) { feed_ = std::move(feed); }
  /// Valid until the next call. Errors: those of the feed; kInvalidArgument for an example that it
  /// names and that is not there.
  Result<std::span<const std::uint32_t>> Next();
  Cursor cursor() const;
  void Restore(Cursor cursor);

 private:
  BatchSource(std::size_t batch_size, std::size_t train_examples)
      : train_examples_(train_examples), indices_(batch_size) {}
  Status Feed();

  std::size_t train_examples_;
  std::vector<std::uint32_t> indices_;  // [batch_size]
  FeedFunction feed_;
  std::unique_ptr<NextBatchSampler> next_batch_;
  std::unique_ptr<RandomBatchSampler> random_;
};

/// For the next life of this worker, after the batches up to there have been pushed.
void SaveCursor(BatchSource::Cursor cursor, WorkerCounters& counters);

/// What both samplers are made of.
SamplerOptions SamplerFor(const WorkerOptions& options, std::size_t train_examples, int worker);

}  // namespace passel
