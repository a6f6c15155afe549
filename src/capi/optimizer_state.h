// optimizer_state.h - slot variables and step count of a program's job: read as a copy, and given
// with the first values.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/page_memory.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"
#include "store/variable_table.h"

namespace passel::capi {

/// A copy: nobody changes it.
class OptimizerState {
 public:
  /// As a snapshot has them (TakeShardSnapshot()): in the modes with rounds of one round as a rule.
  /// REQUIRES: the shards of `table` are initialised.
  static OptimizerState Read(const VariableTable& table, const OptimizerConfig& optimizer,
                             std::span<const ShardMemory> shards);

  std::int64_t step() const { return step_; }
  /// Of each slot variable, as "Adam_1".
  const std::vector<const char*>& names() const { return names_; }
  /// float32, as the variable; that of slot s of variable v is at [v * names().size() + s].
  const std::vector<const float*>& slots() const { return slots_; }

 private:
  std::int64_t step_ = 0;
  std::vector<const char*> names_;
  std::vector<const float*> slots_;
  std::vector<PageFloats> copies_;  // of each shard its values and all its slot variables
};

/// What a program gives.
struct GivenState {
  std::int64_t step = 0;
  std::size_t num_slots = 0;
  /// As OptimizerState::names(); null: they are not said.
  const char* const* names = nullptr;
  /// As OptimizerState::slots(), where null stands for the slot's first values; or null for all.
  const float* const* slots = nullptr;
};

/// OK if a job of these can begin with it. Errors: kInvalidArgument; kDiverged, naming the slot
/// variable that has a NaN or an infinity.
Status CheckState(const GivenState& state, const VariableTable& table,
                  const OptimizerConfig& optimizer);

/// Writes values (null: zeros; else a pointer for each variable, null for zeros) and state into a
/// store of that optimizer. REQUIRES: CheckState() is OK. Errors: those of
/// ParameterStore::Restore().
Status BeginWith(const float* const* values, const GivenState& state,
                 const OptimizerConfig& optimizer, ParameterStore& store);

}  // namespace passel::capi
