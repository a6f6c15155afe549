// variable_table.h - which named tensors there are, and where each one lives.
//
// A variable that is split by rows over several ps tasks has one entry per part; `logical` joins
// them again. Every task of a job holds the same table.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace passel {

/// Index into VariableTable::all(), in creation order.
using VarId = std::uint32_t;

/// One contiguous piece of one float32 variable.
struct VariableInfo {
  std::string name;                 ///< "hid_w", or "hid_w/part_1" for a part
  std::string logical;              ///< "hid_w" for both
  std::vector<std::int64_t> shape;  ///< of this piece, row-major
  std::int64_t first_row = 0;       ///< of this piece within the logical variable
  int shard = 0;                    ///< the ps task that owns it
  std::size_t offset = 0;           ///< first element within the shard's values; multiple of 16
  std::size_t elements = 0;         ///< product of `shape`
  int group = 0;                    ///< of those with the same rates: 0 to kMaxGroups - 1
  bool operator==(const VariableInfo&) const = default;
};

/// Variables start at multiples of this many floats (64 bytes), so that NumPy, PyTorch and JAX can
/// alias them. The floats between two variables stay zero under every optimizer.
inline constexpr std::size_t kVariableAlignment = 16;

inline constexpr int kMaxShards = 16;  ///< ps tasks of one store
inline constexpr std::size_t kMaxVariables = 4096;
inline constexpr std::size_t kMaxNameBytes = 127;
inline constexpr std::size_t kMaxRank = 8;

/// Floats of one shard, behind those before it, that have the rates of one group.
struct GroupSpan {
  std::size_t end = 0;  ///< a multiple of kVariableAlignment
  int group = 0;
};
using GroupSpans = std::vector<GroupSpan>;

class VariableTable {
 public:
  VariableTable() = default;

  /// Computes `offset` and `elements` of every entry from `shape` and `shard`.
  /// Errors: kInvalidArgument for a duplicate or overlong name, a shape that overflows, a shard
  /// outside [0, shards) or a group outside [0, kMaxGroups), more than kMaxVariables entries.
  static Result<VariableTable> Build(std::vector<VariableInfo> variables, int shards);

  std::span<const VariableInfo> all() const { return variables_; }
  const VariableInfo& operator[](VarId id) const { return variables_[id]; }
  std::size_t size() const { return variables_.size(); }
  int shards() const { return shards_; }
  /// Floats of one shard's values, padding included.
  std::size_t ShardFloats(int shard) const {
    return shard_floats_[static_cast<std::size_t>(shard)];
  }
  /// Groups that there are rates for: one more than the highest that a variable is in.
  int groups() const { return groups_; }
  /// All floats of one shard, the padding behind a variable as that. Empty: there is one group.
  GroupSpans GroupsOf(int shard) const;
  /// Trainable elements over all shards, padding excluded.
  std::size_t TotalElements() const;
  bool operator==(const VariableTable&) const = default;

 private:
  std::vector<VariableInfo> variables_;
  std::vector<std::size_t> shard_floats_;
  int shards_ = 0;
  int groups_ = 1;
};

}  // namespace passel
