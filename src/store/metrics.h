// metrics.h - numbers with names that a worker's program shows of itself: a loss, a reward. Each
// worker has its own, in its place in the arena, and they survive its death.
//
// Threads    One worker sets its own, from one thread; anyone reads.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "store/shard_memory.h"

namespace passel {

struct Metric {
  std::string name;
  double value = 0;  ///< may be NaN or infinite
};

/// A name that is new takes one of kMaxMetrics places for good. Errors: kInvalidArgument for a name
/// that is empty, longer than kMaxMetricName or not of printable ASCII without spaces;
/// kResourceExhausted when all places are taken.
Status SetMetric(MetricSlots& slots, std::string_view name, double value);

/// In the order in which they were set first (relaxed: each value is one that was set).
std::vector<Metric> ReadMetrics(const MetricSlots& slots);

}  // namespace passel
