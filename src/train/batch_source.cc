#include "train/batch_source.h"

#include <fmt/core.h>

namespace passel {

SamplerOptions SamplerFor(const WorkerOptions& options, std::size_t train_examples, int worker) {
  SamplerOptions sampler;
  sampler.num_examples = static_cast<std::uint32_t>(train_examples);
  sampler.seed = options.seed;
  sampler.worker = static_cast<std::uint32_t>(worker);
  if (options.shard_data) {
    sampler.num_shards = static_cast<std::uint32_t>(options.num_workers);
    sampler.shard = static_cast<std::uint32_t>(worker);
  }
  return sampler;
}

Result<BatchSource> BatchSource::Make(const WorkerOptions& options, std::size_t train_examples,
                                      const WorkerCounters& counters, int worker) {
  const SamplerOptions sampler = SamplerFor(options, train_examples, worker);
  if (options.batch_size < 1 || options.batch_size > sampler.ShardSize()) {
    return InvalidArgument(
        fmt::format("a batch has 1 to {} examples here, not {}: change --batch_size",
                    sampler.ShardSize(), options.batch_size));
  }
  BatchSource source(options.batch_size, train_examples);
  if (options.sampler == Sampler::kRandom) {
    PASSEL_ASSIGN_OR_RETURN(RandomBatchSampler random,
                            RandomBatchSampler::Create(sampler, options.batch_size));
    source.random_ = std::make_unique<RandomBatchSampler>(std::move(random));
  } else {
    source.next_batch_ = std::make_unique<NextBatchSampler>(sampler);
  }
  source.Restore({counters.cursor_epochs.load(std::memory_order_relaxed),
                  counters.cursor_index.load(std::memory_order_relaxed)});
  return source;
}

Result<std::span<const std::uint32_t>> BatchSource::Next() {
  if (random_) {
    random_->Next(indices_);
  } else {
    next_batch_->Next(indices_);
  }
  if (feed_) PASSEL_RETURN_IF_ERROR(Feed());
  return std::span<const std::uint32_t>(indices_);
}

Status BatchSource::Feed() {
  PASSEL_RETURN_IF_ERROR(feed_(indices_));
  for (const std::uint32_t index : indices_) {
    if (index < train_examples_) continue;
    return InvalidArgument(
        fmt::format("a feed names the example {}, but there are {} to train on: use 0 to {}", index,
                    train_examples_, train_examples_ - 1));
  }
  return {};
}

BatchSource::Cursor BatchSource::cursor() const {
  return random_ ? Cursor{0, random_->cursor()} : next_batch_->cursor();
}

void BatchSource::Restore(Cursor cursor) {
  if (random_) {
    random_->Restore(cursor.index);
  } else {
    next_batch_->Restore(cursor);
  }
}

void SaveCursor(BatchSource::Cursor cursor, WorkerCounters& counters) {
  counters.cursor_epochs.store(cursor.epochs_completed, std::memory_order_relaxed);
  counters.cursor_index.store(cursor.index, std::memory_order_relaxed);
}

}  // namespace passel
