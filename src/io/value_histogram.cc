#include "io/value_histogram.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

namespace passel {
namespace {

// Floats whose upper bits agree lie within 1/16 of each other, and the limits a tenth apart: so one
// look at a table, and few steps, take the place of a binary search.
constexpr int kCellShift = 19;
constexpr std::size_t kCells = std::size_t{1} << (31 - kCellShift);

struct Tables {
  std::vector<double> positive;  // limits above 0, ascending, DBL_MAX the last
  std::vector<double> all;
  std::array<std::uint16_t, kCells> first{};  // positive limits below the smallest value of a cell

  Tables() {
    // As the reference makes them, rounding included.
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(DBL_MAX);
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      // The cells behind the largest float hold infinities and NaNs alone.
      const float least = std::bit_cast<float>(static_cast<std::uint32_t>(cell << kCellShift));
      const auto below = std::lower_bound(positive.begin(), positive.end(),
                                          std::isfinite(least) ? double{least} : DBL_MAX);
      first[cell] = static_cast<std::uint16_t>(below - positive.begin());
    }
  }

  // The bucket of a finite value: the first limit above it.
  std::size_t BucketOf(float value) const {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
    const double size = std::bit_cast<float>(bits);
    std::size_t below = first[bits >> kCellShift];
    if (value >= 0) {
      while (positive[below] <= size) ++below;
      return positive.size() + 1 + below;
    }
    while (positive[below] < size) ++below;
    return positive.size() - below;
  }
};

const Tables& TheTables() {
  static const Tables tables;
  return tables;
}

void KeepBuckets(std::span<const std::uint32_t> counts, ValueHistogram* histogram) {
  const std::vector<double>& limits = TheTables().all;
  for (std::size_t i = 0; i < counts.size();) {
    std::size_t last = i;
    if (counts[i] == 0) {
      while (last + 1 < counts.size() && counts[last + 1] == 0) ++last;
    }
    histogram->limits.push_back(limits[last]);
    histogram->counts.push_back(counts[i]);
    i = last + 1;
  }
}

}  // namespace

std::span<const double> HistogramLimits() { return TheTables().all; }

Result<ValueHistogram> HistogramOf(std::span<const float> values, std::string_view tag) {
  const Tables& tables = TheTables();
  ValueHistogram histogram;
  histogram.min = DBL_MAX;
  histogram.max = -DBL_MAX;
  histogram.num = static_cast<double>(values.size());
  std::vector<std::uint32_t> counts(tables.all.size());
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return InvalidArgument(fmt::format("{} in summary histogram for: {}",
                                         std::isnan(value) ? "Nan" : "Infinity", tag));
    }
    const double v = value;
    ++counts[tables.BucketOf(value)];
    histogram.min = std::min(histogram.min, v);
    histogram.max = std::max(histogram.max, v);
    histogram.sum += v;
    histogram.sum_squares += v * v;
  }
  KeepBuckets(counts, &histogram);
  return histogram;
}

}  // namespace passel
