#include "capi/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/random.h"

namespace passel::capi {
namespace {

constexpr std::int64_t kMostExamples = std::int64_t{1} << 36, kMostInBatch = std::int64_t{1} << 24;
constexpr std::int64_t kMostSeed = (std::int64_t{1} << 62) - 1;

Status CheckRange(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return InvalidArgument(
      fmt::format("{} of a sampler is {} to {}, not {}: give that", what, least, most, value));
}

std::uint64_t PerEpoch(const Sampling& sampling) {
  return static_cast<std::uint64_t>((sampling.examples - 1) / sampling.batch_size + 1);
}

}  // namespace

Result<std::unique_ptr<Sampler>> Sampler::Create(const Sampling& sampling, const Share& share) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  PASSEL_RETURN_IF_ERROR(CheckRange("examples", sampling.examples, 1, kMostExamples));
  PASSEL_RETURN_IF_ERROR(CheckRange("batch_size", sampling.batch_size, 1, kMostInBatch));
  PASSEL_RETURN_IF_ERROR(CheckRange("epochs", sampling.epochs, 0, kAny));
  PASSEL_RETURN_IF_ERROR(CheckRange("seed", sampling.seed, 0, kMostSeed));
  const BatchRules rules = {static_cast<std::uint64_t>(sampling.examples),
                            static_cast<std::uint64_t>(sampling.batch_size),
                            sampling.in_order ? 0 : static_cast<std::uint64_t>(sampling.seed) + 1};
  std::uint64_t end = 0;
  if (sampling.epochs == 0 || __builtin_mul_overflow(static_cast<std::uint64_t>(sampling.epochs),
                                                     PerEpoch(sampling), &end)) {
    end = std::numeric_limits<std::uint64_t>::max();
  }
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<BatchSource> batches, share(rules, end));
  return std::unique_ptr<Sampler>(new Sampler(sampling, std::move(batches)));
}

Result<Sampler::Batch> Sampler::Next() {
  examples_.clear();
  PASSEL_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> number, batches_->Next());
  if (!number) return Batch();
  const auto epoch = static_cast<std::int64_t>(*number / PerEpoch(sampling_));
  const auto first =
      static_cast<std::int64_t>(*number % PerEpoch(sampling_)) * sampling_.batch_size;
  const std::int64_t last = std::min(first + sampling_.batch_size, sampling_.examples);
  if (!sampling_.in_order && epoch != epoch_) {
    order_ = KeyedOrder(
        static_cast<std::uint64_t>(sampling_.examples),
        StreamSeed(static_cast<std::uint64_t>(sampling_.seed), static_cast<std::uint64_t>(epoch)));
    epoch_ = epoch;
  }
  for (std::int64_t place = first; place < last; ++place) {
    examples_.push_back(sampling_.in_order ? place
                                           : static_cast<std::int64_t>(
                                                 order_.At(static_cast<std::uint64_t>(place))));
  }
  return Batch{examples_, epoch};
}

}  // namespace passel::capi
