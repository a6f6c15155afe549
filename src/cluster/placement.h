// placement.h - which ps task owns which variable, and how large variables are cut into shards.
//
// Every task computes the placement for itself from the same list of variables, so it depends on
// nothing else: equal input gives equal output everywhere.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace passel {

/// A variable to place. The list is in creation order and holds every variable of the model, also
/// the non-trainable ones such as global_step: they count. Slot variables are not in it: they live
/// with their variable.
struct PlacementVariable {
  std::string name;
  std::vector<std::int64_t> shape;  ///< each at least 1; empty for a scalar
  int bytes_per_element = 4;
};

/// Contiguous rows (indices of axis 0) of one variable, owned by one ps task.
struct VariablePart {
  int variable = 0;  ///< index into the list
  int part = 0;      ///< 0 to parts - 1, in the order of the rows
  int parts = 1;
  std::int64_t first_row = 0;
  std::int64_t rows = 1;   ///< 1 for a scalar
  std::int64_t bytes = 0;  ///< of all its elements
  std::string name;        ///< the variable's; "<variable>/part_<i>" if a partitioner looked at it
  int ps = 0;              ///< index of the owner

  friend bool operator==(const VariablePart&, const VariablePart&) = default;
};

enum class PlacementStrategy {
  kRoundRobin,   ///< part k of all parts, in creation order, goes to ps k mod P
  kGreedyBytes,  ///< each part goes to the ps with the fewest bytes so far, the first such one
};

/// Into how many parts a variable is cut. Scalars are never cut. A cheap value.
class Partitioner {
 public:
  /// Every variable in one part, under its own name.
  static Partitioner None() { return Partitioner(Kind::kNone, 1, 1); }
  /// min(parts, rows) parts. REQUIRES: parts >= 1.
  static Partitioner FixedSize(int parts);
  /// As many parts as have at least `min_slice_bytes`, at least 1, at most `max_parts` and one per
  /// row: max(1, min(rows, max_parts, ceil(bytes / min_slice_bytes))). REQUIRES: both >= 1.
  static Partitioner MinMax(int max_parts, std::int64_t min_slice_bytes = 256 << 10);
  /// As few parts as need no more than `max_part_bytes` each, at least one row in each:
  /// ceil(rows / max(1, floor(max_part_bytes / bytes of a row))), at most `max_parts` if given
  /// (parts are then larger). REQUIRES: both >= 1.
  static Partitioner VariableAxisSize(std::int64_t max_part_bytes,
                                      std::optional<int> max_parts = std::nullopt);

  /// For a variable of `rows` rows of `row_bytes` bytes. REQUIRES: both >= 1, their product fits in
  /// 63 bits.
  /// Returns 1 to `rows`.
  std::int64_t Parts(std::int64_t rows, std::int64_t row_bytes) const;
  bool none() const { return kind_ == Kind::kNone; }

 private:
  enum class Kind { kNone, kFixedSize, kMinMax, kVariableAxisSize };
  Partitioner(Kind kind, std::int64_t max_parts, std::int64_t bytes)
      : kind_(kind), max_parts_(max_parts), bytes_(bytes) {}
  Kind kind_;
  std::int64_t max_parts_;
  std::int64_t bytes_;
};

/// All parts in creation order, those of one variable in the order of their rows. The first
/// rows mod parts of them have one row more than the others.
/// Errors: kInvalidArgument: `ps_tasks` < 1, a dimension < 1, two equal names, more than 2^63 - 1
/// bytes, more than 1,000,000 parts.
Result<std::vector<VariablePart>> PlaceVariables(std::span<const PlacementVariable> variables,
                                                 int ps_tasks, PlacementStrategy strategy,
                                                 const Partitioner& partitioner);

}  // namespace passel
