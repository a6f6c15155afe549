#include "store/store_plan.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/hash.h"
#include "base/json_fields.h"
#include "optim/optimizer_table.h"

namespace passel {

// What is written and read of each part: its fields, by their names.

void JsonMembers(auto& members, JsonPart<ScheduledMode> auto& scheduled) {
  members("step", scheduled.step);
  members.Named("setting", scheduled.setting, &ModeSetting::ToString, ParseModeSetting);
}
void JsonMembers(auto& members, JsonPart<OptimizerConfig> auto& optimizer) {
  members.Named("kind", optimizer.kind, OptimizerName, ParseOptimizerKind);
  for (const Hyperparameter& parameter : kHyperparameters) {
    double value = parameter.field.Get(optimizer);
    members(parameter.name, value);
    if constexpr (kReadsJson<decltype(members)>) parameter.field.Set(&optimizer, value);
  }
}
void JsonMembers(auto& members, JsonPart<VariableInfo> auto& variable) {
  members("name", variable.name);
  members("logical", variable.logical);
  members("shape", variable.shape);
  members("first_row", variable.first_row);
  members("shard", variable.shard);
  members.IfAny("group", variable.group);
}
void JsonMembers(auto& members, JsonPart<StorePlan> auto& plan) {
  members.Named("mode", plan.mode, &ModeSetting::ToString, ParseModeSetting);
  members("schedule", plan.schedule);
  members("optimizer", plan.optimizer);
  members("on_device", plan.on_device);
  members("num_workers", plan.num_workers);
  members("spare_workers", plan.spare_workers);
  members("gradient_slots", plan.gradient_slots);
  members("block_floats", plan.block_floats);
  int shards = plan.variables.shards();
  std::vector<VariableInfo> variables(plan.variables.all().begin(), plan.variables.all().end());
  members("shards", shards);
  members("variables", variables, kMaxVariables);
  if constexpr (kReadsJson<decltype(members)>) {
    members.Accept(VariableTable::Build(std::move(variables), shards), plan.variables);
  }
}

Status StorePlan::CheckMode(const ModeSetting& setting) const {
  if (on_device && setting.traits().rounds) {
    return InvalidArgument(
        fmt::format("mode {} has rounds, which parameters in GPU memory (--arena device) do not "
                    "take part in: use --mode {}, or --arena host",
                    setting.traits().name, ModeNames(/*rounds=*/false)));
  }
  // What each computes for a round follows from their number.
  if (spare_workers > 0 && setting.mode == Mode::kReplicas && setting.number > num_workers) {
    return InvalidArgument(fmt::format(
        "--replicas_to_aggregate is at most the {} workers of --max_workers in a job that others "
        "may join, not {}: lower it, or start with all its workers and without --max_workers",
        num_workers, setting.number));
  }
  return {};
}

Status StorePlan::Validate() const {
  if (num_workers < 1 || num_workers > kMaxWorkers) {
    return InvalidArgument(fmt::format("a job has 1 to {} workers, not {}: change --workers",
                                       kMaxWorkers, num_workers));
  }
  if (spare_workers < 0 || spare_workers >= num_workers) {
    return InvalidArgument(fmt::format("of {} places for workers 0 to {} can be spare, not {}",
                                       num_workers, num_workers - 1, spare_workers));
  }
  if (gradient_slots < 1 || gradient_slots > kMaxGradientSlots) {
    return InvalidArgument(fmt::format("a worker has 1 to {} gradient slots, not {}",
                                       kMaxGradientSlots, gradient_slots));
  }
  if (block_floats < 16 || block_floats % 16 != 0 || block_floats > (1u << 24)) {
    return InvalidArgument(fmt::format("blocks have a multiple of 16 floats up to {}, not {}",
                                       1u << 24, block_floats));
  }
  if (on_device && variables.groups() > 1) {
    return InvalidArgument(
        fmt::format("the variables have {} groups, and parameters in GPU memory (--arena device) "
                    "have one: use one group, or --arena host",
                    variables.groups()));
  }
  if (variables.size() == 0) return InvalidArgument("a store needs at least one variable");
  for (int shard = 0; shard < variables.shards(); ++shard) {
    if (NumBlocks(shard) > kMaxBlocks) {
      return InvalidArgument(fmt::format(
          "ps {} would have {:.3g} values, in {} blocks of {}, and the most is {} blocks: "
          "use more ps, or smaller variables",
          shard, static_cast<double>(variables.ShardFloats(shard)), NumBlocks(shard), block_floats,
          kMaxBlocks));
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
  memory.spare_workers = spare_workers;
  memory.gradient_slots = gradient_slots;
  memory.num_slots = NumSlots(optimizer);
  memory.num_groups = variables.groups();
  if (memory.num_groups > 1) {
    memory.groups = std::make_shared<const GroupSpans>(variables.GroupsOf(shard));
  }
  return memory;
}

ShardRules StorePlan::Rules() const {
  return {.mode = mode, .optimizer = optimizer, .num_workers = num_workers, .schedule = schedule};
}

std::string ToJson(const StorePlan& plan) { return JsonOf(plan).Write(); }

Result<StorePlan> PlanFromJson(const std::string& text) {
  constexpr int kDepth = 4;  // plan > variables > variable > shape
  PASSEL_ASSIGN_OR_RETURN(const Json json, ParseJson("the plan of the store", text, kDepth));
  StorePlan plan;
  PASSEL_RETURN_IF_ERROR(ReadJson("the plan of the store", json, &plan));
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  // A switch that is neither 0 nor 1, or what means the same and is written in another way.
  if (ToJson(plan) != text) {
    return InvalidArgument(
        "the plan of the store is not as this build writes it: start all tasks from the same build "
        "of passel");
  }
  return plan;
}

std::string FirstDifference(const StorePlan& mine, const StorePlan& theirs) {
  // By the names that people know.
  const std::size_t both = std::min(mine.variables.size(), theirs.variables.size());
  for (VarId id = 0; id < both; ++id) {
    const VariableInfo &here = mine.variables[id], &there = theirs.variables[id];
    if (here.name != there.name) {
      return fmt::format("variable {} is \"{}\" here and \"{}\" there", id, here.name, there.name);
    }
    if (here.shape != there.shape) {
      return fmt::format("variable \"{}\" has the shape [{}] here and [{}] there", here.name,
                         fmt::join(here.shape, ", "), fmt::join(there.shape, ", "));
    }
    if (here.group != there.group) {
      return fmt::format("variable \"{}\" is in group {} here and in {} there", here.name,
                         here.group, there.group);
    }
  }
  if (mine.variables.size() != theirs.variables.size()) {
    const bool more = mine.variables.size() > both;
    const std::string& name = (more ? mine : theirs).variables[static_cast<VarId>(both)].name;
    return fmt::format("variable {} is {} here and {} there", both,
                       more ? fmt::format("\"{}\"", name) : "absent",
                       more ? "absent" : fmt::format("\"{}\"", name));
  }
  const auto here = JsonOf(mine).Leaves(), there = JsonOf(theirs).Leaves();
  for (const auto& [place, value] : here) {
    const auto other = there.find(place);
    const std::string_view name = std::string_view(place).substr(1);  // behind the root's "/"
    if (other == there.end()) return fmt::format("{} is {} here and absent there", name, value);
    if (other->second == value) continue;
    return fmt::format("{} is {} here and {} there", name, value, other->second);
  }
  for (const auto& [place, value] : there) {
    if (!here.contains(place)) {
      return fmt::format("{} is absent here and {} there", std::string_view(place).substr(1),
                         value);
    }
  }
  return "";
}

}  // namespace passel
