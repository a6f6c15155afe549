// samples.h - medians and percentiles of what was measured. Every sample is kept.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace passel::lab {

/// The smallest sample that at least the share `q` of all samples does not exceed; 0 of none.
inline double Percentile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(samples.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  const auto at =
      samples.begin() + static_cast<std::ptrdiff_t>(std::min(index, samples.size() - 1));
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

/// The median: of an even number it is the mean of the two in the middle, of none 0.
inline double Median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  if (samples.size() % 2 == 1) return samples[middle];
  return (samples[middle - 1] + samples[middle]) / 2;
}

/// (largest - smallest) / median; 0 of fewer than two.
inline double Spread(const std::vector<double>& samples) {
  if (samples.size() < 2) return 0;
  const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
  const double median = Median(samples);
  return median == 0 ? 0 : (*high - *low) / std::abs(median);
}

/// In the unit of the row.
struct Latency {
  std::size_t samples = 0;
  double p50 = 0, p99 = 0, p999 = 0, maximum = 0;
};

inline Latency Summarize(const std::vector<double>& samples) {
  Latency latency;
  latency.samples = samples.size();
  if (samples.empty()) return latency;
  latency.p50 = Percentile(samples, 0.50);
  latency.p99 = Percentile(samples, 0.99);
  latency.p999 = Percentile(samples, 0.999);
  latency.maximum = *std::max_element(samples.begin(), samples.end());
  return latency;
}

}  // namespace passel::lab
