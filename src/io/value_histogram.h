// value_histogram.h - how the elements of a tensor are spread, in the buckets that TensorBoard
// expects of a histogram.
//
// A bucket holds the values from the limit before it (included) to its own limit (not included).
// The limits are 0, +-1e-12 * 1.1^k up to 1e20, and +-DBL_MAX: 1551 in all.
//
// Thread safety: the functions share constant tables alone.

#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace passel {

struct ValueHistogram {
  double min = 0, max = 0;
  double num = 0;  ///< so many values
  double sum = 0, sum_squares = 0;
  /// Of the buckets that are kept, ascending: each that has values, and one for each run of empty
  /// ones, with the limit of its last. Without any value one bucket, up to DBL_MAX.
  std::vector<double> limits;
  std::vector<double> counts;
};

/// All limits, ascending.
std::span<const double> HistogramLimits();

/// Errors: kInvalidArgument, naming `tag`, for a NaN or an infinity among the values.
Result<ValueHistogram> HistogramOf(std::span<const float> values, std::string_view tag);

}  // namespace passel
