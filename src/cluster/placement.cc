#include "cluster/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace passel {
namespace {

constexpr std::size_t kMaxParts = 1'000'000;

/// a / b, rounded up. REQUIRES: a >= 1, b >= 1.
std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a - 1) / b + 1; }

struct Extent {
  std::int64_t rows;
  std::int64_t row_bytes;
};

/// Checks one variable; its bytes are within 2^63 - 1.
Result<Extent> ExtentOf(const PlacementVariable& variable) {
  if (variable.name.empty()) return InvalidArgument("a variable has no name: give it one");
  if (variable.bytes_per_element < 1) {
    return InvalidArgument(
        fmt::format("variable \"{}\" has {} bytes per element: it takes 1 or more", variable.name,
                    variable.bytes_per_element));
  }
  std::int64_t bytes = variable.bytes_per_element;
  for (const std::int64_t size : variable.shape) {
    if (size < 1) {
      return InvalidArgument(fmt::format(
          "variable \"{}\" has a dimension of {}: it takes 1 or more", variable.name, size));
    }
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return InvalidArgument(fmt::format("variable \"{}\" has more than {} bytes: make it smaller",
                                         variable.name, std::numeric_limits<std::int64_t>::max()));
    }
  }
  const std::int64_t rows = variable.shape.empty() ? 1 : variable.shape[0];
  return Extent{rows, bytes / rows};
}

}  // namespace

Partitioner Partitioner::FixedSize(int parts) {
  PASSEL_CHECK(parts >= 1, "a partitioner makes at least one part");
  return Partitioner(Kind::kFixedSize, parts, 1);
}

Partitioner Partitioner::MinMax(int max_parts, std::int64_t min_slice_bytes) {
  PASSEL_CHECK(max_parts >= 1 && min_slice_bytes >= 1, "both limits are at least 1");
  return Partitioner(Kind::kMinMax, max_parts, min_slice_bytes);
}

Partitioner Partitioner::VariableAxisSize(std::int64_t max_part_bytes,
                                          std::optional<int> max_parts) {
  PASSEL_CHECK(max_part_bytes >= 1 && max_parts.value_or(1) >= 1, "both limits are at least 1");
  return Partitioner(
      Kind::kVariableAxisSize,
      max_parts ? std::int64_t{*max_parts} : std::numeric_limits<std::int64_t>::max(),
      max_part_bytes);
}

std::int64_t Partitioner::Parts(std::int64_t rows, std::int64_t row_bytes) const {
  PASSEL_CHECK(rows >= 1 && row_bytes >= 1, "a variable has rows and bytes");
  switch (kind_) {
    case Kind::kNone:
      return 1;
    case Kind::kFixedSize:
      return std::min(rows, max_parts_);
    case Kind::kMinMax:
      // PlaceVariables has made sure that rows * row_bytes fits.
      return std::min({rows, max_parts_, CeilDiv(rows * row_bytes, bytes_)});
    case Kind::kVariableAxisSize: {
      const std::int64_t rows_per_part = std::max<std::int64_t>(1, bytes_ / row_bytes);
      return std::min(max_parts_, CeilDiv(rows, rows_per_part));
    }
  }
  return 1;
}

Result<std::vector<VariablePart>> PlaceVariables(std::span<const PlacementVariable> variables,
                                                 int ps_tasks, PlacementStrategy strategy,
                                                 const Partitioner& partitioner) {
  if (ps_tasks < 1) {
    return InvalidArgument(
        fmt::format("variables cannot be placed on {} ps tasks: start at least one", ps_tasks));
  }
  std::vector<VariablePart> placed;
  std::set<std::string, std::less<>> names;
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ps_tasks), 0);  // bytes
  std::int64_t total_bytes = 0;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const PlacementVariable& variable = variables[v];
    PASSEL_ASSIGN_OR_RETURN(const Extent extent, ExtentOf(variable));
    if (__builtin_add_overflow(total_bytes, extent.rows * extent.row_bytes, &total_bytes)) {
      return InvalidArgument(
          fmt::format("the variables up to \"{}\" have more than {} bytes "
                      "together: make them smaller",
                      variable.name, std::numeric_limits<std::int64_t>::max()));
    }
    const bool whole = partitioner.none() || variable.shape.empty();
    const std::int64_t parts = whole ? 1 : partitioner.Parts(extent.rows, extent.row_bytes);
    if (static_cast<std::uint64_t>(parts) > kMaxParts - placed.size()) {
      return InvalidArgument(fmt::format(
          "variable \"{}\" would be cut into {} parts, which makes more than {} in all: allow "
          "larger parts",
          variable.name, parts, kMaxParts));
    }
    std::int64_t next_row = 0;
    for (std::int64_t i = 0; i < parts; ++i) {
      VariablePart part;
      part.variable = static_cast<int>(v);
      part.part = static_cast<int>(i);
      part.parts = static_cast<int>(parts);
      part.first_row = next_row;
      part.rows = extent.rows / parts + (i < extent.rows % parts ? 1 : 0);
      part.bytes = part.rows * extent.row_bytes;
      part.name = whole ? variable.name : fmt::format("{}/part_{}", variable.name, i);
      if (!names.insert(part.name).second) {
        return InvalidArgument(
            fmt::format("two variables or parts are named \"{}\": rename one", part.name));
      }
      switch (strategy) {
        case PlacementStrategy::kRoundRobin:
          part.ps = static_cast<int>(placed.size() % loads.size());
          break;
        case PlacementStrategy::kGreedyBytes:
          // min_element returns the first of equals: the lowest index on ties.
          part.ps = static_cast<int>(std::min_element(loads.begin(), loads.end()) - loads.begin());
          break;
      }
      loads[static_cast<std::size_t>(part.ps)] += part.bytes;
      next_row += part.rows;
      placed.push_back(std::move(part));
    }
  }
  return placed;
}

}  // namespace passel
