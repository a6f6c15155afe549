// model_plan.h - from a model to the store that holds it, and back.
//
// The store knows named variables on shards; the model knows its variables in parts. Both lists
// come from here, so they always agree.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/device.h"
#include "cluster/placement.h"
#include "nn/model.h"
#include "nn/model_config.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"

namespace passel {

/// Where the variables go.
struct PlacementOptions {
  PlacementStrategy strategy = PlacementStrategy::kRoundRobin;
  Partitioner partitioner = Partitioner::None();
  /// Whether global_step is created after the model's variables instead of before them.
  bool global_step_last = false;
  /// What global_step counts for in greedy placement: the reference programs declare it int32 or
  /// int64. Whatever counts, ps 0 keeps it, in 8 bytes of its own (shard_memory.h).
  int global_step_bytes = 4;
  /// A variable, with all its parts, at a place of its own. As in the reference programs it still
  /// counts for the others where the strategy would have put it.
  struct Pin {
    std::string variable;
    Device device;  ///< of a ps; what is left out stays as the strategy says
  };
  std::vector<Pin> pins;
};

/// Where every variable of `model` counts on `ps_tasks` ps tasks, global_step among them: in
/// creation order, each part on its own. `variable` counts in that order. Errors: kInvalidArgument
/// from the placement, and for a pin of a variable or to a task that does not exist.
Result<std::vector<VariablePart>> PlaceWithGlobalStep(const ModelConfig& model, int ps_tasks,
                                                      const PlacementOptions& options);

/// Whether the pinned variables and their places exist; needs no data: the sizes that come from it
/// make no difference. Errors: kInvalidArgument.
Status CheckPins(const ModelConfig& model, int ps_tasks, const PlacementOptions& options);

/// The variables of `model` on `shards` ps tasks. As in the reference programs, global_step counts
/// in the placement, but the store keeps it itself, on shard 0.
/// Errors: those of PlaceWithGlobalStep().
Result<VariableTable> PlaceModel(const ModelConfig& model, int shards,
                                 const PlacementOptions& options);

/// The model of a program that has described these variables itself, in their order.
ModelConfig OwnModel(const VariableTable& variables);

/// Which entries of the table are the parts of each of the model's variables.
class ModelLayout {
 public:
  /// Errors: kInvalidArgument when the table holds other variables than the model, named.
  static Result<ModelLayout> Make(const ModelConfig& model, const VariableTable& table);

  /// Fills in `parts` (kept between calls: nothing is allocated after the first).
  void Bind(const ParamView& view, std::vector<std::vector<RowPart>>* parts) const;
  void Bind(const GradientBuffer& gradient, std::vector<std::vector<MutableRowPart>>* parts) const;
  /// Each element is one shard's values: for a reader without a store.
  void Bind(std::span<const float* const> shard_values,
            std::vector<std::vector<RowPart>>* parts) const;

  /// Model variable and first row of one entry of the table.
  std::size_t variable_of(VarId id) const { return variable_of_[id]; }
  const std::vector<std::vector<VarId>>& parts() const { return parts_; }
  const VariableTable& table() const { return table_; }

 private:
  VariableTable table_;
  std::vector<std::vector<VarId>> parts_;  // [model variables], by first row
  std::vector<std::size_t> variable_of_;   // [table entries]
};

/// Writes the model's first values into a store. For the chief.
Status InitializeStore(const ModelConfig& model, const ModelLayout& layout, ParameterStore& store);

}  // namespace passel
