#include "store/variable_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "optim/optimizer.h"

namespace passel {

Result<VariableTable> VariableTable::Build(std::vector<VariableInfo> variables, int shards) {
  if (shards < 1 || shards > kMaxShards) {
    return InvalidArgument(
        fmt::format("a store has 1 to {} ps tasks, not {}: change --ps", kMaxShards, shards));
  }
  if (variables.size() > kMaxVariables) {
    return InvalidArgument(fmt::format("a model has at most {} variables and parts, not {}",
                                       kMaxVariables, variables.size()));
  }
  VariableTable table;
  table.shards_ = shards;
  table.shard_floats_.assign(static_cast<std::size_t>(shards), 0);
  std::set<std::string> names;
  for (VariableInfo& v : variables) {
    if (v.name.empty() || v.name.size() > kMaxNameBytes || v.logical.size() > kMaxNameBytes) {
      return InvalidArgument(fmt::format("variable names have 1 to {} bytes, \"{}\" has {}",
                                         kMaxNameBytes, v.name, v.name.size()));
    }
    for (const char c : v.name + v.logical) {
      if (c <= ' ' || c > '~') {
        return InvalidArgument(
            fmt::format("variable names are printable ASCII without spaces, this one has byte "
                        "{:#04x} after \"{}\"",
                        static_cast<unsigned char>(c), v.name.substr(0, v.name.find(c))));
      }
    }
    if (!names.insert(v.name).second) {
      return InvalidArgument(
          fmt::format("two variables are named \"{}\": names are unique", v.name));
    }
    if (v.shard < 0 || v.shard >= shards) {
      return InvalidArgument(
          fmt::format("variable \"{}\" is placed on ps {} of {}", v.name, v.shard, shards));
    }
    if (v.shape.size() > kMaxRank) {
      return InvalidArgument(fmt::format("variable \"{}\" has rank {}, the most is {}", v.name,
                                         v.shape.size(), kMaxRank));
    }
    if (v.group < 0 || v.group >= kMaxGroups) {
      return InvalidArgument(fmt::format(
          "variable \"{}\" is in group {}, and the groups are 0 to {}: join some groups", v.name,
          v.group, kMaxGroups - 1));
    }
    table.groups_ = std::max(table.groups_, 1 + v.group);
    // Half of the address space in bytes: no later sum of a few of these can wrap.
    std::uint64_t elements = 1;
    for (const std::int64_t d : v.shape) {
      if (d < 0 || (d > 0 && elements > (std::uint64_t{1} << 56) / static_cast<std::uint64_t>(d))) {
        return InvalidArgument(
            fmt::format("variable \"{}\" has a dimension of {}: too large", v.name, d));
      }
      elements *= static_cast<std::uint64_t>(d);
    }
    v.elements = elements;
    std::size_t& end = table.shard_floats_[static_cast<std::size_t>(v.shard)];
    v.offset = end;
    end += (elements + kVariableAlignment - 1) / kVariableAlignment * kVariableAlignment;
    if (end > (std::size_t{1} << 57)) {
      return InvalidArgument(
          fmt::format("the variables of ps {} do not fit an address space", v.shard));
    }
  }
  table.variables_ = std::move(variables);
  return table;
}

GroupSpans VariableTable::GroupsOf(int shard) const {
  GroupSpans spans;
  if (groups_ == 1) return spans;
  for (const VariableInfo& v : variables_) {  // by their offsets
    if (v.shard != shard || v.elements == 0) continue;
    if (spans.empty() || spans.back().group != v.group) spans.push_back({0, v.group});
    spans.back().end =
        v.offset + (v.elements + kVariableAlignment - 1) / kVariableAlignment * kVariableAlignment;
  }
  return spans;
}

std::size_t VariableTable::TotalElements() const {
  std::size_t total = 0;
  for (const VariableInfo& v : variables_) total += v.elements;
  return total;
}

}  // namespace passel
