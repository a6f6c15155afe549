#include "store/store_plan.h"

#include <fmt/core.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/hash.h"

namespace passel {

Status StorePlan::CheckMode(const ModeSetting& setting) const {
  if (on_device && IsRoundMode(setting.mode)) {
    return InvalidArgument(
        fmt::format("mode {} has rounds, which parameters in GPU memory (--arena device) do not "
                    "take part in: use --mode hogwild, locked or ssp, or --arena host",
                    ModeName(setting.mode)));
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
    const std::size_t pieces =
        NumBlocks(shard) * ((block_floats - 1) / PieceFloats(block_floats) + 1);
    // Whatever the first mode is: a job may be changed to one with rounds, but for one on a device.
    if (!on_device && pieces > kMaxPieces) {
      return InvalidArgument(
          fmt::format("ps {} would have {} pieces of {} floats, the most is {}: "
                      "use more ps",
                      shard, pieces, PieceFloats(block_floats), kMaxPieces));
    }
  }
  PASSEL_RETURN_IF_ERROR(FirstMode().Validate());
  PASSEL_RETURN_IF_ERROR(CheckMode(FirstMode()));
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
  hash.AddNumber(static_cast<std::uint64_t>(mode));
  hash.AddNumber(static_cast<std::uint64_t>(replicas_to_aggregate));
  hash.AddNumber(static_cast<std::uint64_t>(staleness_bound));
  for (const ScheduledMode& entry : schedule) {
    hash.AddNumber(static_cast<std::uint64_t>(entry.step));
    hash.AddText(entry.setting.ToString());
  }
  std::uint8_t bytes[sizeof optimizer];
  std::memcpy(bytes, &optimizer, sizeof optimizer);
  for (const std::uint8_t b : bytes) hash.AddByte(b);
  hash.AddNumber(on_device ? 1 : 0);
  hash.AddNumber(static_cast<std::uint64_t>(num_workers));
  hash.AddNumber(static_cast<std::uint64_t>(gradient_slots));
  hash.AddNumber(block_floats);
  hash.AddNumber(variables.Hash());
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
  rules.schedule = schedule;
  rules.Set(FirstMode());
  return rules;
}

std::string ToJson(const StorePlan& plan) {
  const OptimizerConfig& o = plan.optimizer;
  nlohmann::json variables = nlohmann::json::array();
  for (const VariableInfo& v : plan.variables.all()) {
    variables.push_back({{"name", v.name},
                         {"logical", v.logical},
                         {"shape", v.shape},
                         {"first_row", v.first_row},
                         {"shard", v.shard}});
  }
  nlohmann::json schedule = nlohmann::json::array();
  for (const ScheduledMode& entry : plan.schedule) {
    schedule.push_back({{"step", entry.step}, {"mode", entry.setting.ToString()}});
  }
  const nlohmann::json json = {{"mode", ModeName(plan.mode)},
                               {"replicas_to_aggregate", plan.replicas_to_aggregate},
                               {"staleness_bound", plan.staleness_bound},
                               {"schedule", schedule},
                               {"optimizer",
                                {{"kind", OptimizerName(o.kind)},
                                 {"use_nesterov", o.use_nesterov != 0},
                                 {"centered", o.centered != 0},
                                 {"learning_rate", o.learning_rate},
                                 {"momentum", o.momentum},
                                 {"rmsprop_momentum", o.rmsprop_momentum},
                                 {"rmsprop_decay", o.rmsprop_decay},
                                 {"rmsprop_epsilon", o.rmsprop_epsilon},
                                 {"adam_beta1", o.adam_beta1},
                                 {"adam_beta2", o.adam_beta2},
                                 {"adam_epsilon", o.adam_epsilon},
                                 {"initial_accumulator", o.initial_accumulator},
                                 {"learning_rate_power", o.learning_rate_power},
                                 {"l1", o.l1},
                                 {"l2", o.l2},
                                 {"l2_shrinkage", o.l2_shrinkage}}},
                               {"on_device", plan.on_device},
                               {"num_workers", plan.num_workers},
                               {"gradient_slots", plan.gradient_slots},
                               {"block_floats", plan.block_floats},
                               {"shards", plan.variables.shards()},
                               {"variables", variables}};
  return json.dump();
}

Result<StorePlan> PlanFromJson(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    StorePlan plan;
    PASSEL_ASSIGN_OR_RETURN(plan.mode, ParseMode(json.at("mode").get<std::string>()));
    plan.replicas_to_aggregate = json.at("replicas_to_aggregate").get<int>();
    plan.staleness_bound = json.at("staleness_bound").get<int>();
    for (const nlohmann::json& entry : json.at("schedule")) {
      ScheduledMode& scheduled = plan.schedule.emplace_back();
      scheduled.step = entry.at("step").get<std::int64_t>();
      PASSEL_ASSIGN_OR_RETURN(scheduled.setting,
                              ParseModeSetting(entry.at("mode").get<std::string>()));
    }
    const nlohmann::json& j = json.at("optimizer");
    OptimizerConfig& o = plan.optimizer;
    PASSEL_ASSIGN_OR_RETURN(o.kind, ParseOptimizerKind(j.at("kind").get<std::string>()));
    o.use_nesterov = j.at("use_nesterov").get<bool>();
    o.centered = j.at("centered").get<bool>();
    o.learning_rate = j.at("learning_rate").get<double>();
    o.momentum = j.at("momentum").get<double>();
    o.rmsprop_momentum = j.at("rmsprop_momentum").get<double>();
    o.rmsprop_decay = j.at("rmsprop_decay").get<double>();
    o.rmsprop_epsilon = j.at("rmsprop_epsilon").get<double>();
    o.adam_beta1 = j.at("adam_beta1").get<double>();
    o.adam_beta2 = j.at("adam_beta2").get<double>();
    o.adam_epsilon = j.at("adam_epsilon").get<double>();
    o.initial_accumulator = j.at("initial_accumulator").get<double>();
    o.learning_rate_power = j.at("learning_rate_power").get<double>();
    o.l1 = j.at("l1").get<double>();
    o.l2 = j.at("l2").get<double>();
    o.l2_shrinkage = j.at("l2_shrinkage").get<double>();
    plan.on_device = json.at("on_device").get<bool>();
    plan.num_workers = json.at("num_workers").get<int>();
    plan.gradient_slots = json.at("gradient_slots").get<int>();
    plan.block_floats = json.at("block_floats").get<std::size_t>();
    std::vector<VariableInfo> variables;
    for (const nlohmann::json& v : json.at("variables")) {
      VariableInfo info;
      info.name = v.at("name").get<std::string>();
      info.logical = v.at("logical").get<std::string>();
      info.shape = v.at("shape").get<std::vector<std::int64_t>>();
      info.first_row = v.at("first_row").get<std::int64_t>();
      info.shard = v.at("shard").get<int>();
      variables.push_back(std::move(info));
    }
    PASSEL_ASSIGN_OR_RETURN(
        plan.variables, VariableTable::Build(std::move(variables), json.at("shards").get<int>()));
    PASSEL_RETURN_IF_ERROR(plan.Validate());
    // Numbers that wrapped or were cut, flags that are numbers, unknown settings.
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
