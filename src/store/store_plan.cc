#include "store/store_plan.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "optim/optimizer_table.h"

namespace passel {

// What is written and read of each part: its fields, by their names. nlohmann::json finds these.

void to_json(nlohmann::json& json, const ModeSetting& mode) { json = mode.ToString(); }
void from_json(const nlohmann::json& json, ModeSetting& mode) {
  if (const auto known = ParseModeSetting(json.get<std::string>()); known.ok()) mode = *known;
}
void to_json(nlohmann::json& json, const OptimizerConfig& optimizer) {
  json["kind"] = OptimizerName(optimizer.kind);
  for (const Hyperparameter& parameter : kHyperparameters) {
    json[std::string(parameter.name)] = parameter.field.Get(optimizer);
  }
}
void from_json(const nlohmann::json& json, OptimizerConfig& optimizer) {
  const auto known = ParseOptimizerKind(json.at("kind").get<std::string>());
  if (known.ok()) optimizer.kind = *known;
  for (const Hyperparameter& parameter : kHyperparameters) {
    parameter.field.Set(&optimizer, json.at(std::string(parameter.name)).get<double>());
  }
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ScheduledMode, step, setting)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(VariableInfo, name, logical, shape, first_row, shard)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StorePlan, mode, schedule, optimizer, on_device, num_workers,
                                   gradient_slots, block_floats)

Status StorePlan::CheckMode(const ModeSetting& setting) const {
  if (on_device && setting.traits().rounds) {
    return InvalidArgument(
        fmt::format("mode {} has rounds, which parameters in GPU memory (--arena device) do not "
                    "take part in: use --mode {}, or --arena host",
                    setting.traits().name, ModeNames(/*rounds=*/false)));
  }
  return {};
}

Status StorePlan::Validate() const {
  if (num_workers < 1 || num_workers > kMaxWorkers) {
    return InvalidArgument(fmt::format("a job has 1 to {} workers, not {}: change --workers",
                                       kMaxWorkers, num_workers));
  }
  if (gradient_slots < 1 || gradient_slots > kMaxGradientSlots) {
    return InvalidArgument(fmt::format("a worker has 1 to {} gradient slots, not {}",
                                       kMaxGradientSlots, gradient_slots));
  }
  if (block_floats < 16 || block_floats % 16 != 0 || block_floats > (1u << 24)) {
    return InvalidArgument(fmt::format("blocks have a multiple of 16 floats up to {}, not {}",
                                       1u << 24, block_floats));
  }
  if (variables.size() == 0) return InvalidArgument("a store needs at least one variable");
  for (int shard = 0; shard < variables.shards(); ++shard) {
    if (NumBlocks(shard) > kMaxBlocks) {
      return InvalidArgument(fmt::format("ps {} would have {} blocks, the most is {}: use more ps",
                                         shard, NumBlocks(shard), kMaxBlocks));
    }
    const std::size_t pieces = NumBlocks(shard) * ShapeOf(shard).PiecesPerBlock();
    // Whatever the first mode is: a job may be changed to one with rounds, but for one on a device.
    if (!on_device && pieces > kMaxPieces) {
      return InvalidArgument(
          fmt::format("ps {} would have {} pieces of {} floats, the most is {}: "
                      "use more ps",
                      shard, pieces, PieceFloats(block_floats), kMaxPieces));
    }
  }
  PASSEL_RETURN_IF_ERROR(mode.Validate());
  PASSEL_RETURN_IF_ERROR(CheckMode(mode));
  if (schedule.size() > static_cast<std::size_t>(kMaxScheduledModes)) {
    return InvalidArgument(fmt::format("--mode_schedule has at most {} changes of mode, not {}",
                                       kMaxScheduledModes, schedule.size()));
  }
  std::int64_t before = 0;
  for (const ScheduledMode& entry : schedule) {
    if (entry.step <= before || entry.step > kMaxScheduledStep) {
      return InvalidArgument(
          fmt::format("--mode_schedule names rising global steps from 1 to {}, not {} after {}",
                      kMaxScheduledStep, entry.step, before));
    }
    before = entry.step;
    PASSEL_RETURN_IF_ERROR(entry.setting.Validate().WithContext("--mode_schedule"));
    PASSEL_RETURN_IF_ERROR(CheckMode(entry.setting).WithContext("--mode_schedule"));
  }
  return passel::Validate(optimizer);
}

std::uint64_t StorePlan::Hash() const {
  Fnv1a hash;
  hash.AddText(ToJson(*this));
  return hash.value();
}

ShardMemory StorePlan::ShapeOf(int shard) const {
  ShardMemory memory;
  memory.floats = variables.ShardFloats(shard);
  memory.block_floats = block_floats;
  memory.num_blocks = NumBlocks(shard);
  memory.num_workers = num_workers;
  memory.gradient_slots = gradient_slots;
  memory.num_slots = NumSlots(optimizer);
  return memory;
}

ShardRules StorePlan::Rules() const {
  ShardRules rules;
  rules.optimizer = optimizer;
  rules.num_workers = num_workers;
  rules.mode = mode;
  rules.schedule = schedule;
  return rules;
}

std::string ToJson(const StorePlan& plan) {
  nlohmann::json json = plan;
  json["shards"] = plan.variables.shards();
  json["variables"] = std::vector(plan.variables.all().begin(), plan.variables.all().end());
  return json.dump();
}

Result<StorePlan> PlanFromJson(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    auto plan = json.get<StorePlan>();
    PASSEL_ASSIGN_OR_RETURN(
        plan.variables, VariableTable::Build(json.at("variables").get<std::vector<VariableInfo>>(),
                                             json.at("shards").get<int>()));
    PASSEL_RETURN_IF_ERROR(plan.Validate());
    // Numbers that wrapped or were cut, names that are not known, settings that are not.
    if (nlohmann::json::parse(ToJson(plan)) != json) {
      return InvalidArgument(
          "the plan of the store says more than this build understands, or a number does not fit: "
          "start all tasks from the same build of passel");
    }
    return plan;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(fmt::format("the plan of the store is not readable: {}", error.what()));
  }
}

std::string FirstDifference(const StorePlan& mine, const StorePlan& theirs) {
  const nlohmann::json a = nlohmann::json::parse(ToJson(mine)).flatten();
  const nlohmann::json b = nlohmann::json::parse(ToJson(theirs)).flatten();
  for (const auto& [key, value] : a.items()) {
    const auto other = b.find(key);
    if (other == b.end()) return fmt::format("{} is {} here and absent there", key, value.dump());
    if (*other != value) {
      return fmt::format("{} is {} here and {} there", key, value.dump(), other->dump());
    }
  }
  return "the chief has more variables";
}

}  // namespace passel
