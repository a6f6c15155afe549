#include "data/samplers.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace passel {
namespace {

// Keep these streams apart from whatever else the job derives from its seed. The values fix which
// batches a seed means: do not change them.
constexpr std::uint64_t kEpochStreams = 0x6570'6f63'68;  // "epoch"
constexpr std::uint64_t kBatchStreams = 0x6261'7463'68;  // "batch"

Random StreamOf(const SamplerOptions& options, std::uint64_t domain, std::uint64_t position) {
  return Random(StreamSeed(StreamSeed(options.seed, domain), options.worker, position));
}

// The shard's example numbers, ascending.
void FillInOrder(const SamplerOptions& options, std::span<std::uint32_t> examples) {
  std::uint32_t example = options.shard;
  for (std::uint32_t& slot : examples) {
    slot = example;
    example += options.num_shards;
  }
}

}  // namespace

std::uint32_t SamplerOptions::ShardSize() const {
  PASSEL_CHECK(num_shards > 0 && shard < num_shards, "shard must be one of num_shards");
  return num_examples / num_shards + (shard < num_examples % num_shards ? 1 : 0);
}

NextBatchSampler::NextBatchSampler(const SamplerOptions& options, bool shuffle)
    : options_(options), shuffle_(shuffle), order_(options.ShardSize()) {
  FillInOrder(options_, order_);
}

void NextBatchSampler::OrderFor(std::uint64_t epoch) {
  if (!shuffle_ || (ordered_ && ordered_epoch_ == epoch)) return;
  // From file order each time, not from the last order: an epoch's order depends on no other.
  FillInOrder(options_, order_);
  Random random = StreamOf(options_, kEpochStreams, epoch);
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[random.Below(i)]);
  }
  ordered_epoch_ = epoch;
  ordered_ = true;
}

std::size_t NextBatchSampler::Next(std::span<std::uint32_t> out) {
  const std::size_t n = order_.size();
  const auto start = static_cast<std::size_t>(std::min<std::uint64_t>(cursor_.index, n));
  const auto place = [this](std::size_t position) {
    return order_.begin() + static_cast<std::ptrdiff_t>(position);
  };
  OrderFor(cursor_.epochs_completed);
  if (out.size() <= n - start) {
    std::copy_n(place(start), out.size(), out.begin());
    cursor_.index = start + out.size();
    return out.size();
  }
  const std::size_t rest = n - start;
  std::copy_n(place(start), rest, out.begin());
  ++cursor_.epochs_completed;
  OrderFor(cursor_.epochs_completed);
  // The reference lets its index run ahead of n when a batch is larger than n; what the next call
  // returns is the same as from n.
  const std::size_t first = std::min(out.size() - rest, n);
  std::copy_n(place(0), first, out.subspan(rest).begin());
  cursor_.index = first;
  return rest + first;
}

RandomBatchSampler::RandomBatchSampler(const SamplerOptions& options, std::uint32_t batch_size)
    : options_(options), pool_(options.ShardSize()), swapped_(batch_size) {
  FillInOrder(options_, pool_);
}

Result<RandomBatchSampler> RandomBatchSampler::Create(const SamplerOptions& options,
                                                      std::uint32_t batch_size) {
  if (batch_size < 1 || batch_size > options.ShardSize()) {
    return InvalidArgument(
        fmt::format("a batch of {} cannot be drawn without replacement from {} training examples: "
                    "choose a batch size from 1 to {}",
                    batch_size, options.ShardSize(), options.ShardSize()));
  }
  return RandomBatchSampler(options, batch_size);
}

void RandomBatchSampler::Next(std::span<std::uint32_t> out) {
  PASSEL_CHECK(out.size() == swapped_.size(), "the buffer must hold exactly one batch");
  Random random = StreamOf(options_, kBatchStreams, batches_++);
  // The first steps of a Fisher-Yates shuffle, undone afterwards, so that the next batch starts
  // from file order again and depends on its number alone.
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t j = i + random.Below(pool_.size() - i);
    std::swap(pool_[i], pool_[j]);
    swapped_[i] = static_cast<std::uint32_t>(j);
    out[i] = pool_[i];
  }
  for (std::size_t i = out.size(); i-- > 0;) std::swap(pool_[i], pool_[swapped_[i]]);
}

}  // namespace passel
