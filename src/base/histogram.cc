#include "base/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace passel {

std::vector<BucketCount> Buckets(std::span<const Histogram* const> histograms) {
  std::vector<BucketCount> buckets;
  for (int b = 0; b < Histogram::kBuckets; ++b) {
    std::uint64_t n = 0;
    for (const Histogram* h : histograms) n += h->counts[b].load(std::memory_order_relaxed);
    const std::uint64_t least = b == 0 ? 0 : HistogramBucketTop(b - 1) + 1;
    if (n > 0) buckets.push_back({least, HistogramBucketTop(b), n});
  }
  return buckets;
}

HistogramSummary Summarize(std::span<const Histogram* const> histograms) {
  HistogramSummary summary;
  for (const Histogram* h : histograms) {
    summary.maximum = std::max(summary.maximum, h->maximum.load(std::memory_order_relaxed));
  }
  const std::vector<BucketCount> buckets = Buckets(histograms);
  for (const BucketCount& bucket : buckets) summary.count += bucket.count;
  // Nearest rank: the smallest value with at least q * count samples at or below it.
  const auto quantile = [&](double q) {
    const double rank = std::ceil(q * static_cast<double>(summary.count));
    double before = 0;
    for (const BucketCount& bucket : buckets) {
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
