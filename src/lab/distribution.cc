#include "lab/distribution.h"

#include <algorithm>
#include <cmath>

namespace passel::lab {
namespace {

// The place of the q-quantile among `count` samples in order. REQUIRES: count > 0.
std::size_t Rank(std::size_t count, double q) {
  // A hair less: 0.9 * 10 is 9.000000000000002 in one order of operations and 9 in another.
  const double rank = std::ceil(q * static_cast<double>(count) - 1e-9);
  return std::min(static_cast<std::size_t>(std::max(rank, 1.0)) - 1, count - 1);
}

// REQUIRES: `sorted` is not empty.
double Quantile(const std::vector<float>& sorted, double q) {
  return static_cast<double>(sorted[Rank(sorted.size(), q)]);
}

}  // namespace

Distribution Describe(std::vector<float> samples) {
  Distribution found;
  found.samples = samples.size();
  if (samples.empty()) return found;
  std::sort(samples.begin(), samples.end());
  found.p50 = Quantile(samples, 0.50);
  found.p90 = Quantile(samples, 0.90);
  found.p99 = Quantile(samples, 0.99);
  found.p999 = Quantile(samples, 0.999);
  found.maximum = static_cast<double>(samples.back());
  found.curve.emplace_back(0.0, static_cast<double>(samples.front()));
  for (int k = 1;; ++k) {
    const double beyond = std::pow(10.0, -k / 10.0);
    if (beyond * static_cast<double>(samples.size()) < 1) break;
    found.curve.emplace_back(1 - beyond, Quantile(samples, 1 - beyond));
  }
  found.curve.emplace_back(1.0, found.maximum);
  return found;
}

double MedianSample(std::vector<float> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(Rank(samples.size(), 0.5));
  std::nth_element(samples.begin(), middle, samples.end());
  return static_cast<double>(*middle);
}

}  // namespace passel::lab
