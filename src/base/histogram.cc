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
  // Nearest rank: the smallest value with at least q * count samples at or below it.
  const auto quantile = [&](double q) {
    const auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(summary.count)));
    std::uint64_t seen = 0;
    for (int b = 0; b < Histogram::kBuckets; ++b) {
      seen += counts[static_cast<std::size_t>(b)];
      if (seen >= rank && seen > 0) return std::min(HistogramBucketTop(b), summary.maximum);
    }
    return summary.maximum;
  };
  summary.p50 = quantile(0.5);
  summary.p99 = quantile(0.99);
  summary.p999 = quantile(0.999);
  return summary;
}

}  // namespace passel
