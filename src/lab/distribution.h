// distribution.h - many samples as a few figures. Every sample counts.

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace passel::lab {

/// In the unit of the samples.
struct Distribution {
  std::size_t samples = 0;
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, maximum = 0;
  /// (q, the q-quantile): q = 0, then 1 - 10^(-k/10) for k = 1, 2, ... as far as there are samples
  /// beyond it, then 1. Rising in both.
  std::vector<std::pair<double, double>> curve;
};

/// Quantiles are samples: the smallest one that at least the share q does not exceed.
Distribution Describe(std::vector<float> samples);

/// The 0.5-quantile alone, in less time; 0 of none.
double MedianSample(std::vector<float> samples);

}  // namespace passel::lab
