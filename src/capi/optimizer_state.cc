#include "capi/optimizer_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "store/shard_snapshot.h"

namespace passel::capi {
namespace {

constexpr std::int64_t kMostSteps = (std::int64_t{1} << 40) - 1;  // rounds that can be counted

std::string SlotNames(const OptimizerConfig& optimizer) {
  std::vector<std::string_view> names;
  for (int s = 0; s < NumSlots(optimizer); ++s) names.push_back(SlotName(optimizer, s));
  return names.empty() ? "none" : fmt::format("{} ({})", names.size(), fmt::join(names, ", "));
}

}  // namespace

OptimizerState OptimizerState::Read(const VariableTable& table, const OptimizerConfig& optimizer,
                                    std::span<const ShardMemory> shards) {
  OptimizerState state;
  const auto num_slots = static_cast<std::size_t>(NumSlots(optimizer));
  // Their texts end with 0: the rows of the table are literals.
  for (std::size_t s = 0; s < num_slots; ++s) {
    state.names_.push_back(SlotName(optimizer, static_cast<int>(s)).data());
  }
  for (std::size_t shard = shards.size();
       shard-- > 0;) {  // the lead's last: its step is the state's
    const ShardMemory& memory = shards[shard];
    std::vector<float*> out;
    for (std::size_t k = 0; k <= num_slots; ++k) {
      out.push_back(state.copies_.emplace_back(memory.floats).floats().data());
    }
    state.step_ = TakeShardSnapshot(memory, shard == 0, out).progress.optimizer_step;
  }
  for (const VariableInfo& v : table.all()) {
    const std::size_t first =
        (shards.size() - 1 - static_cast<std::size_t>(v.shard)) * (1 + num_slots);
    for (std::size_t s = 0; s < num_slots; ++s) {
      state.slots_.push_back(state.copies_[first + 1 + s].floats().data() + v.offset);
    }
  }
  return state;
}

Status CheckState(const GivenState& state, const VariableTable& table,
                  const OptimizerConfig& optimizer) {
  if (std::cmp_not_equal(state.num_slots, NumSlots(optimizer))) {
    return InvalidArgument(
        fmt::format("the state has {} slot variables of each variable, and {} keeps {}: give those",
                    state.num_slots, OptimizerName(optimizer.kind), SlotNames(optimizer)));
  }
  for (std::size_t s = 0; state.names != nullptr && s < state.num_slots; ++s) {
    const std::string_view name = SlotName(optimizer, static_cast<int>(s));
    if (state.names[s] != nullptr && state.names[s] == name) continue;
    return InvalidArgument(fmt::format(
        "slot variable {} of the state is {}, and of {} it is \"{}\": give the state of that "
        "optimizer",
        s, state.names[s] == nullptr ? "NULL" : Quoted(state.names[s]),
        OptimizerName(optimizer.kind), name));
  }
  if (state.step < 0 || state.step > kMostSteps) {
    return InvalidArgument(fmt::format("the step of the optimizer is 0 to {}, not {}: give another",
                                       kMostSteps, state.step));
  }
  for (VarId id = 0; state.slots != nullptr && id < table.size(); ++id) {
    for (std::size_t s = 0; s < state.num_slots; ++s) {
      const float* const slot = state.slots[id * state.num_slots + s];
      if (slot == nullptr) continue;
      const std::span<const float> given(slot, table[id].elements);
      const auto bad = std::ranges::find_if(given, [](float f) { return !std::isfinite(f); });
      if (bad == given.end()) continue;
      return Diverged(
          fmt::format("the first value {} of slot variable \"{}/{}\" is {}, so nothing was "
                      "written: give finite "
                      "values",
                      bad - given.begin(), Printable(table[id].name, kMaxNameBytes),
                      SlotName(optimizer, static_cast<int>(s)), *bad));
    }
  }
  return {};
}

Status BeginWith(const float* const* values, const GivenState& state,
                 const OptimizerConfig& optimizer, ParameterStore& store) {
  JobProgress progress;
  progress.global_step = state.step;
  progress.shards.assign(static_cast<std::size_t>(store.variables().shards()),
                         {static_cast<Version>(state.step), state.step});
  return store.Restore(progress, [&](VarId id, int k, std::span<float> out) {
    const float* from = nullptr;
    if (k == 0) {
      if (values != nullptr) from = values[id];
    } else if (state.slots != nullptr) {
      from = state.slots[id * state.num_slots + static_cast<std::size_t>(k - 1)];
    }
    if (from != nullptr) {
      std::copy_n(from, out.size(), out.begin());
    } else {
      std::ranges::fill(out, k == 0 ? 0.F : SlotInitialValue(optimizer, k - 1));
    }
  });
}

}  // namespace passel::capi
