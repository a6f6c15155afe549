#include "base/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace passel {

HistogramSummary Summarize(std::span<const Histogram* const> histograms) {
  HistogramSummary summary;
  std::vector<std::uint64_t> counts(Histogram::kBuckets, 0);
  for (const Histogram* h : histograms) {
    for (int b = 0; b < Histogram::kBuckets; ++b) {
      const std::uint64_t n = h->counts[b].load(std::memory_order_relaxed);
      counts[static_cast<std::size_t>(b)] += n;
      summary.count += n;
    }
    summary.maximum = std::max(summary.maximum, h->maximum.load(std::memory_order_relaxed));
  }
  for (int b = 0; b < Histogram::kBuckets; ++b) {
    const std::uint64_t n = counts[static_cast<std::size_t>(b)];
    const std::uint64_t least = b == 0 ? 0 : HistogramBucketTop(b - 1) + 1;
    if (n > 0) summary.buckets.push_back({least, HistogramBucketTop(b), n});
  }
  // Nearest rank: the smallest value with at least q * count samples at or below it.
  const auto quantile = [&](double q) {
    const double rank = std::ceil(q * static_cast<double>(summary.count));
    double before = 0;
    for (const HistogramSummary::Bucket& bucket : summary.buckets) {
      const auto n = static_cast<double>(bucket.count);
      if (before + n < rank) {
        before += n;
        continue;
      }
      const double share = (rank - before - 0.5) / n;
      const auto above =
          static_cast<std::uint64_t>(share * static_cast<double>(bucket.most - bucket.least));
      return std::min(bucket.least + above, summary.maximum);
    }
    return summary.maximum;
  };
  summary.p50 = quantile(0.5);
  summary.p99 = quantile(0.99);
  summary.p999 = quantile(0.999);
  return summary;
}

}  // namespace passel
