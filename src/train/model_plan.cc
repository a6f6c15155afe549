#include "train/model_plan.h"

#include <fmt/core.h>

#include <algorithm>

namespace passel {

namespace {

// The index of global_step in the order of creation.
int GlobalStepIndex(const std::vector<VariableSpec>& specs, const PlacementOptions& options) {
  return options.global_step_last ? static_cast<int>(specs.size()) : 0;
}

Status CheckPin(const PlacementOptions::Pin& pin, const std::vector<VariableSpec>& specs,
                int ps_tasks) {
  std::string names;
  bool found = false;
  for (const VariableSpec& spec : specs) {
    found = found || spec.name == pin.variable;
    names += (names.empty() ? "" : ", ") + spec.name;
  }
  const std::string text = fmt::format("{}={}", pin.variable, pin.device.ToString());
  if (!found) {
    return InvalidArgument(fmt::format(
        "--pin_variable {}: the model has the variables {}, and only those can be pinned", text,
        names));
  }
  const Device& device = pin.device;
  if (!device.job.empty() && device.job != "ps") {
    return InvalidArgument(
        fmt::format("--pin_variable {}: variables live on ps tasks: use /job:ps/task:N", text));
  }
  if (device.replica.value_or(0) != 0 || device.index.value_or(0) != 0 ||
      device.type.value_or(Device::Type::kCpu) != Device::Type::kCpu) {
    return InvalidArgument(
        fmt::format("--pin_variable {}: a ps keeps its variables in host memory: use replica:0 and "
                    "cpu:0, or omit them",
                    text));
  }
  if (!device.task) return {};  // any ps
  if (*device.task >= ps_tasks) {
    return InvalidArgument(
        fmt::format("--pin_variable {}: the job has {} ps, so the task is 0 to {}, not {}", text,
                    ps_tasks, ps_tasks - 1, *device.task));
  }
  return {};
}

}  // namespace

Status CheckPins(const ModelConfig& model, int ps_tasks, const PlacementOptions& options) {
  const std::vector<VariableSpec> specs = ModelVariables(model);
  for (const PlacementOptions::Pin& pin : options.pins) {
    PASSEL_RETURN_IF_ERROR(CheckPin(pin, specs, ps_tasks));
  }
  return {};
}

Result<std::vector<VariablePart>> PlaceWithGlobalStep(const ModelConfig& model, int ps_tasks,
                                                      const PlacementOptions& options) {
  PASSEL_RETURN_IF_ERROR(model.Validate());
  PASSEL_RETURN_IF_ERROR(CheckPins(model, ps_tasks, options));
  const std::vector<VariableSpec> specs = ModelVariables(model);
  std::vector<PlacementVariable> to_place;
  for (const VariableSpec& v : specs) to_place.push_back({v.name, v.shape, 4});
  to_place.insert(to_place.begin() + GlobalStepIndex(specs, options),
                  PlacementVariable{"global_step", {}, options.global_step_bytes});
  PASSEL_ASSIGN_OR_RETURN(
      std::vector<VariablePart> placed,
      PlaceVariables(to_place, ps_tasks, options.strategy, options.partitioner));
  for (const PlacementOptions::Pin& pin : options.pins) {
    if (!pin.device.task) continue;  // any ps
    for (VariablePart& part : placed) {
      const auto variable = static_cast<std::size_t>(part.variable);
      if (to_place[variable].name == pin.variable) part.ps = *pin.device.task;
    }
  }
  return placed;
}

Result<VariableTable> PlaceModel(const ModelConfig& model, int shards,
                                 const PlacementOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<VariablePart> placed,
                          PlaceWithGlobalStep(model, shards, options));
  const std::vector<VariableSpec> specs = ModelVariables(model);
  const int global_step = GlobalStepIndex(specs, options);
  std::vector<VariableInfo> infos;
  for (const VariablePart& part : placed) {
    if (part.variable == global_step) continue;
    const VariableSpec& spec =
        specs[static_cast<std::size_t>(part.variable - (part.variable > global_step ? 1 : 0))];
    VariableInfo info;
    info.name = part.name;
    info.logical = spec.name;
    info.shape = spec.shape;
    info.shape[0] = part.rows;
    info.first_row = part.first_row;
    info.shard = part.ps;
    infos.push_back(std::move(info));
  }
  return VariableTable::Build(std::move(infos), shards);
}

ModelConfig OwnModel(const VariableTable& variables) {
  ModelConfig model;
  model.kind = ModelKind::kOwn;
  for (const VariableInfo& piece : variables.all()) {
    const auto same = [&](const VariableSpec& spec) { return spec.name == piece.logical; };
    const auto known = std::ranges::find_if(model.variables, same);
    if (known == model.variables.end()) {
      model.variables.push_back({piece.logical, piece.shape});
    } else {
      known->shape[0] += piece.shape[0];
    }
  }
  return model;
}

Result<ModelLayout> ModelLayout::Make(const ModelConfig& model, const VariableTable& table) {
  const std::vector<VariableSpec> specs = ModelVariables(model);
  ModelLayout layout;
  layout.table_ = table;
  layout.parts_.resize(specs.size());
  layout.variable_of_.resize(table.size());
  for (VarId id = 0; id < table.size(); ++id) {
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const VariableSpec& s) {
      return s.name == table[id].logical;
    });
    if (spec == specs.end()) {
      return InvalidArgument(fmt::format(
          "the store has a variable \"{}\" that this model does not have", table[id].name));
    }
    const auto variable = static_cast<std::size_t>(spec - specs.begin());
    layout.variable_of_[id] = variable;
    layout.parts_[variable].push_back(id);
  }
  for (std::size_t variable = 0; variable < specs.size(); ++variable) {
    std::vector<VarId>& parts = layout.parts_[variable];
    std::sort(parts.begin(), parts.end(),
              [&](VarId a, VarId b) { return table[a].first_row < table[b].first_row; });
    std::int64_t rows = 0;
    for (const VarId id : parts) {
      const VariableInfo& v = table[id];
      std::vector<std::int64_t> expected = specs[variable].shape;
      if (!v.shape.empty()) expected[0] = v.shape[0];
      if (v.first_row != rows || v.shape != expected) {
        return InvalidArgument(
            fmt::format("the store's variable \"{}\" has another shape than the "
                        "model's",
                        v.name));
      }
      rows += v.shape[0];
    }
    if (rows != specs[variable].shape[0]) {
      return InvalidArgument(
          fmt::format("the store has {} rows of variable \"{}\", the model has {}", rows,
                      specs[variable].name, specs[variable].shape[0]));
    }
  }
  return layout;
}

namespace {

// `values(id)` gives the memory of one entry of the table.
template <typename Part, typename Values>
void BindParts(const std::vector<std::vector<VarId>>& ids, const VariableTable& table,
               Values&& values, std::vector<std::vector<Part>>* parts) {
  parts->resize(ids.size());
  for (std::size_t variable = 0; variable < ids.size(); ++variable) {
    std::vector<Part>& out = (*parts)[variable];
    out.resize(ids[variable].size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const VariableInfo& v = table[ids[variable][i]];
      out[i] = {values(ids[variable][i]), static_cast<std::size_t>(v.first_row),
                static_cast<std::size_t>(v.shape[0])};
    }
  }
}

}  // namespace

void ModelLayout::Bind(const ParamView& view, std::vector<std::vector<RowPart>>* parts) const {
  BindParts(
      parts_, table_, [&](VarId id) { return view.values(id).data(); }, parts);
}

void ModelLayout::Bind(const GradientBuffer& gradient,
                       std::vector<std::vector<MutableRowPart>>* parts) const {
  BindParts(
      parts_, table_, [&](VarId id) { return gradient.values(id).data(); }, parts);
}

void ModelLayout::Bind(std::span<const float* const> shard_values,
                       std::vector<std::vector<RowPart>>* parts) const {
  BindParts(
      parts_, table_,
      [&](VarId id) {
        return shard_values[static_cast<std::size_t>(table_[id].shard)] + table_[id].offset;
      },
      parts);
}

Status InitializeStore(const ModelConfig& model, const ModelLayout& layout, ParameterStore& store) {
  return store.Initialize([&](VarId id, std::span<float> values) {
    InitializeVariable(model, layout.variable_of(id),
                       static_cast<std::size_t>(layout.table()[id].first_row), values);
  });
}

}  // namespace passel
