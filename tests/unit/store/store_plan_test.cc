// VariableTable and StorePlan: what is accepted, what is refused, and the way through JSON.

#include "store/store_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace passel {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

VariableInfo Variable(const std::string& name, std::vector<std::int64_t> shape, int shard = 0) {
  VariableInfo v;
  v.name = v.logical = name;
  v.shape = std::move(shape);
  v.shard = shard;
  return v;
}

VariableInfo InGroup(int group, VariableInfo v) {
  v.group = group;
  return v;
}

StorePlan ValidPlan() {
  StorePlan plan;
  plan.mode = Mode::kBarrier;
  plan.optimizer = *ParseOptimizer("adam");
  plan.optimizer.learning_rate = 0.1;  // not exact in binary
  plan.num_workers = 7;
  plan.gradient_slots = 2;
  plan.block_floats = 512;
  VariableInfo part = Variable("w/part_1", {3, 5}, 1);
  part.logical = "w";
  part.first_row = 4;
  plan.variables =
      *VariableTable::Build({Variable("w/part_0", {4, 5}), part, Variable("b", {})}, 2);
  return plan;
}

TEST(VariableTable, PlacesEachVariableAtAMultipleOf64BytesWithinItsShard) {
  const auto table =
      VariableTable::Build({Variable("a", {3, 5}), Variable("b", {17}, 1), Variable("c", {}),
                            Variable("d", {0, 9}), Variable("e", {16})},
                           3);
  ASSERT_TRUE(table.ok());
  const std::size_t offsets[] = {0, 0, 16, 32, 32};
  const std::size_t elements[] = {15, 17, 1, 0, 16};
  for (VarId id = 0; id < 5; ++id) {
    EXPECT_EQ((*table)[id].offset, offsets[id]);
    EXPECT_EQ((*table)[id].elements, elements[id]);
  }
  EXPECT_EQ(table->ShardFloats(0), 48u);
  EXPECT_EQ(table->ShardFloats(1), 32u);
  EXPECT_EQ(table->ShardFloats(2), 0u);
  EXPECT_EQ(table->TotalElements(), 49u);
}

TEST(VariableTable, RefusesWhatDoesNotFit) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<VariableInfo>> wrong = {
      {Variable("", {1})},
      {Variable(std::string(kMaxNameBytes + 1, 'x'), {1})},
      {Variable("a", {1}), Variable("a", {2})},
      {Variable("a b", {1})},
      {Variable(std::string("a\0b", 3), {1})},
      {Variable("\xc3\xa4", {1})},
      {Variable("a\n", {1})},
      {Variable("a", {1}, -1)},
      {Variable("a", {1}, 2)},
      {Variable("a", {-1})},
      {Variable("a", {std::numeric_limits<std::int64_t>::min()})},
      {Variable("a", {kMost})},
      {Variable("a", {1 << 30, 1 << 30})},
      {Variable("a", {std::int64_t{1} << 57})},
      {Variable("a", {std::int64_t{1} << 56}), Variable("b", {std::int64_t{1} << 56}),
       Variable("c", {1})},
      {Variable("a", {1, 1, 1, 1, 1, 1, 1, 1, 1})},
      std::vector<VariableInfo>(kMaxVariables + 1, Variable("a", {1})),
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    const auto table = VariableTable::Build(wrong[i], 2);
    ASSERT_FALSE(table.ok()) << i;
    EXPECT_EQ(table.status().code(), Code::kInvalidArgument) << i;
  }
  VariableInfo logical = Variable("a", {1});
  logical.logical = "\xff";
  EXPECT_FALSE(VariableTable::Build({logical}, 1).ok());
  for (const int shards : {0, -1, kMaxShards + 1}) {
    EXPECT_FALSE(VariableTable::Build({Variable("a", {1})}, shards).ok());
  }
  EXPECT_TRUE(VariableTable::Build({Variable(std::string(kMaxNameBytes, 'x'), {0, kMost})}, 1).ok())
      << "nothing times anything is nothing";
}

TEST(StorePlan, HashTellsTablesApart) {
  const auto hash = [](std::vector<VariableInfo> variables, int shards) {
    StorePlan plan = ValidPlan();
    plan.variables = *VariableTable::Build(std::move(variables), shards);
    return plan.Hash();
  };
  const std::uint64_t one = hash({Variable("a", {2, 3})}, 1);
  EXPECT_EQ(one, hash({Variable("a", {2, 3})}, 1));
  EXPECT_NE(one, hash({Variable("a", {3, 2})}, 1));
  EXPECT_NE(one, hash({Variable("b", {2, 3})}, 1));
  EXPECT_NE(one, hash({Variable("a", {2, 3})}, 2));
  EXPECT_NE(hash({Variable("a", {2, 3}, 0)}, 2), hash({Variable("a", {2, 3}, 1)}, 2));
  EXPECT_NE(hash({Variable("a", {1}), Variable("b", {1})}, 1),
            hash({Variable("b", {1}), Variable("a", {1})}, 1));
}

TEST(StorePlan, ComesBackFromJsonWithTheSameHash) {
  for (const char* optimizer : {"sgd", "nesterov", "adagrad", "rmsprop", "adam", "ftrl"}) {
    StorePlan plan = ValidPlan();
    plan.optimizer = *ParseOptimizer(optimizer);
    plan.optimizer.learning_rate = 1.0 / 3;
    plan.schedule = {
        {10, {Mode::kLocked, 0}}, {20, {Mode::kReplicas, 3}}, {kMaxScheduledStep, {Mode::kSsp, 0}}};
    const Result<StorePlan> back = PlanFromJson(ToJson(plan));
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(back->Hash(), plan.Hash());
    EXPECT_EQ(back->optimizer, plan.optimizer);
    EXPECT_EQ(back->num_workers, 7);
    EXPECT_EQ(back->schedule, plan.schedule);
    EXPECT_EQ(back->variables, plan.variables);
    EXPECT_EQ(back->variables[1].first_row, 4);
    EXPECT_EQ(back->variables[1].logical, "w");
  }
}

TEST(StorePlan, ScheduleHasRisingStepsAndValidModes) {
  const auto valid = [](std::vector<ScheduledMode> schedule) {
    StorePlan plan = ValidPlan();
    plan.schedule = std::move(schedule);
    const bool ok = plan.Validate().ok();
    EXPECT_EQ(PlanFromJson(ToJson(plan)).ok(), ok);
    return ok;
  };
  const ModeSetting locked{Mode::kLocked, 0};
  EXPECT_TRUE(valid({{1, locked}, {2, {Mode::kSsp, 0}}, {kMaxScheduledStep, locked}}));
  EXPECT_FALSE(valid({{0, locked}}));
  EXPECT_FALSE(valid({{-1, locked}}));
  EXPECT_FALSE(valid({{kMaxScheduledStep + 1, locked}}));
  EXPECT_FALSE(valid({{5, locked}, {5, locked}}));
  EXPECT_FALSE(valid({{5, locked}, {4, locked}}));
  EXPECT_FALSE(valid({{5, {Mode::kReplicas, -1}}}));
  EXPECT_FALSE(valid({{5, {Mode::kSsp, kMaxStalenessBound + 1}}}));
  std::vector<ScheduledMode> many;
  for (int i = 1; i <= kMaxScheduledModes; ++i) many.push_back({i, locked});
  EXPECT_TRUE(valid(many));
  many.push_back({kMaxScheduledModes + 1, locked});
  EXPECT_FALSE(valid(many));
}

TEST(StorePlan, HashTellsPlansApart) {
  const std::uint64_t hash = ValidPlan().Hash();
  const std::function<void(StorePlan&)> changes[] = {
      [](StorePlan& p) { p.mode = Mode::kLocked; },
      [](StorePlan& p) {
        p.mode = {Mode::kReplicas, 5};
      },
      [](StorePlan& p) {
        p.mode = {Mode::kSsp, 5};
      },
      [](StorePlan& p) {
        p.schedule = {{10, {Mode::kLocked, 0}}};
      },
      [](StorePlan& p) { p.optimizer.learning_rate = 0.2; },
      [](StorePlan& p) { p.optimizer.adam_epsilon = 1e-7; },
      [](StorePlan& p) { p.num_workers = 8; },
      [](StorePlan& p) { p.gradient_slots = 1; },
      [](StorePlan& p) { p.block_floats = 1024; }};
  for (const auto& change : changes) {
    StorePlan plan = ValidPlan();
    change(plan);
    EXPECT_NE(plan.Hash(), hash);
  }
}

TEST(StorePlan, ValidateNamesTheLimitAndTheValue) {
  StorePlan plan = ValidPlan();
  EXPECT_TRUE(plan.Validate().ok());
  for (const int workers : {0, -1, kMaxWorkers + 1}) {
    plan.num_workers = workers;
    EXPECT_EQ(plan.Validate().code(), Code::kInvalidArgument);
    EXPECT_THAT(plan.Validate().message(), HasSubstr(std::to_string(workers)));
    EXPECT_THAT(plan.Validate().message(), HasSubstr("256"));
  }
  plan = ValidPlan();
  for (const int slots : {0, kMaxGradientSlots + 1}) {
    plan.gradient_slots = slots;
    EXPECT_EQ(plan.Validate().code(), Code::kInvalidArgument);
  }
  plan = ValidPlan();
  for (const std::size_t floats : {0ul, 8ul, 17ul, (1ul << 24) + 16, ~0ul, ~0ul - 15}) {
    plan.block_floats = floats;
    EXPECT_EQ(plan.Validate().code(), Code::kInvalidArgument) << floats;
  }
  plan = ValidPlan();
  plan.variables = VariableTable();
  EXPECT_EQ(plan.Validate().code(), Code::kInvalidArgument);
  plan = ValidPlan();
  plan.block_floats = 16;
  plan.variables = *VariableTable::Build({Variable("a", {std::int64_t{1} << 28})}, 1);
  EXPECT_THAT(plan.Validate().message(), HasSubstr("16777216")) << "2^24 blocks are too many";
  // A job may enter a mode with rounds later.
  for (const Mode mode : {Mode::kBarrier, Mode::kHogwild}) {
    plan = ValidPlan();
    plan.mode = mode;
    plan.block_floats = std::size_t{1} << 15;
    plan.variables = *VariableTable::Build({Variable("a", {std::int64_t{1} << 38})}, 1);
    EXPECT_THAT(plan.Validate().message(), HasSubstr("pieces of 512 floats")) << ModeName(mode);
    plan.on_device = mode == Mode::kHogwild;
    EXPECT_EQ(plan.Validate().ok(), plan.on_device) << "these have no rounds";
  }
  plan = ValidPlan();
  plan.optimizer.learning_rate = -1;
  EXPECT_EQ(plan.Validate().code(), Code::kInvalidArgument);
}

TEST(StorePlan, ModesTakeTheirOwnNumbersAndNoOthers) {
  StorePlan plan = ValidPlan();
  for (const Mode mode :
       {Mode::kHogwild, Mode::kLocked, Mode::kBarrier, Mode::kReplicas, Mode::kSsp}) {
    plan.mode = mode;
    EXPECT_TRUE(plan.Validate().ok()) << ModeName(mode);
    for (const int number : {1, 7, kMaxReplicasToAggregate, kMaxReplicasToAggregate + 1,
                             kMaxStalenessBound, kMaxStalenessBound + 1, -1}) {
      plan.mode.number = number;
      const bool fits = number > 0 && ((mode == Mode::kReplicas && number <= 65536) ||
                                       (mode == Mode::kSsp && number <= 1000000));
      EXPECT_EQ(plan.Validate().ok(), fits) << ModeName(mode) << " " << number;
      if (!fits) {
        EXPECT_THAT(plan.Validate().message(), HasSubstr(std::to_string(number)));
      }
    }
  }
  plan = ValidPlan();
  plan.mode = Mode::kReplicas;
  EXPECT_EQ(plan.Rules().RoundSize(), 7) << "one for each worker";
  plan.mode.number = 20;
  EXPECT_EQ(PlanFromJson(ToJson(plan))->Rules().RoundSize(), 20);
  plan.mode = {Mode::kSsp, 9};
  EXPECT_EQ(PlanFromJson(ToJson(plan))->Rules().mode, plan.mode);
}

TEST(StorePlan, JsonThatToJsonWouldNotWriteIsRefused) {
  const Json good = Json::parse(ToJson(ValidPlan()));
  ASSERT_TRUE(PlanFromJson(good.dump()).ok());
  const auto refused = [](const Json& json) {
    const Result<StorePlan> plan = PlanFromJson(json.dump());
    EXPECT_FALSE(plan.ok()) << json.dump();
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    }
  };
  const Json odd_values[] = {nullptr,       true,          "x",   -1,
                             1.5,           4294967297,    1e300, 18446744073709551615u,
                             Json::array(), Json::object()};
  const auto try_all = [&](const Json::json_pointer& at) {
    Json without = good;
    without[at.parent_pointer()].erase(at.back());
    if (!at.parent_pointer().empty() || at.back() != "") refused(without);
    for (const Json& value : odd_values) {
      Json changed = good;
      if (changed[at] == value) continue;
      // A number where a floating-point number belongs, or a name, may be fine.
      if (good[at].is_number_float() && value.is_number()) continue;
      if (good[at].is_boolean() && value.is_boolean()) continue;
      if (good[at].is_string() && value.is_string()) continue;
      if (good[at].is_array() && value.is_array() && at.back() == "shape") continue;  // a scalar
      if (value.is_array() && at.back() == "schedule") continue;                      // none
      changed[at] = value;
      refused(changed);
    }
  };
  for (const char* key : {"mode", "schedule", "optimizer", "num_workers", "spare_workers",
                          "gradient_slots", "block_floats", "shards", "variables"}) {
    try_all(Json::json_pointer(std::string("/") + key));
  }
  for (const auto& [key, value] : good["optimizer"].items()) {
    try_all(Json::json_pointer("/optimizer/" + key));
  }
  for (const char* key : {"name", "logical", "shape", "shard"}) {
    try_all(Json::json_pointer(std::string("/variables/1/") + key));
  }
  const Status not_known = [&] {
    Json another = good;
    another["optimizer"]["kind"] = "clever";
    return PlanFromJson(another.dump()).status();
  }();
  EXPECT_THAT(not_known.message(), HasSubstr("optimizer: \"kind\" is \"clever\""));
  Json unknown = good;
  unknown["clever"] = 1;
  refused(unknown);
  Json twice = good;
  twice["variables"][1]["name"] = twice["variables"][0]["name"];
  refused(twice);
  const std::string text = good.dump();
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    ASSERT_FALSE(PlanFromJson(text.substr(0, cut)).ok()) << cut;
  }
  // One meaning of a key that comes twice would be the one that was checked, the other the one
  // used.
  std::string key_twice = text;
  key_twice.insert(1, "\"num_workers\":7,");
  EXPECT_THAT(PlanFromJson(key_twice).status().message(), HasSubstr("twice"));
  EXPECT_FALSE(PlanFromJson(text + std::string(1, '\0') + "x").ok());
  EXPECT_FALSE(PlanFromJson(text + "}").ok());
  EXPECT_FALSE(PlanFromJson(std::string(100'000, '[')).ok());
  EXPECT_FALSE(PlanFromJson("\xff\xfe").ok());
}

TEST(StorePlan, TheFirstDifferenceIsNamedByItsPlace) {
  const StorePlan plan = ValidPlan();
  StorePlan other = plan;
  other.optimizer.learning_rate = 0.25;
  EXPECT_EQ(FirstDifference(plan, other), "optimizer/learning_rate is 0.1 here and 0.25 there");
  other = plan;
  other.mode = {Mode::kSsp, 3};
  EXPECT_EQ(FirstDifference(plan, other), R"(mode is "barrier" here and "ssp=3" there)");
  other = plan;
  other.variables = *VariableTable::Build({Variable("w/part_0", {4, 5})}, 2);
  EXPECT_EQ(FirstDifference(plan, other), R"(variable 1 is "w/part_1" here and absent there)");
  EXPECT_EQ(FirstDifference(other, plan), R"(variable 1 is absent here and "w/part_1" there)");
  other.variables = *VariableTable::Build({Variable("w/part_0", {4, 6})}, 2);
  EXPECT_EQ(FirstDifference(plan, other),
            "variable \"w/part_0\" has the shape [4, 5] here and [4, 6] there");
  other.variables = *VariableTable::Build({Variable("v", {4, 5})}, 2);
  EXPECT_EQ(FirstDifference(plan, other), "variable 0 is \"w/part_0\" here and \"v\" there");
  other.variables = *VariableTable::Build({InGroup(3, Variable("w/part_0", {4, 5}))}, 2);
  EXPECT_EQ(FirstDifference(plan, other),
            "variable \"w/part_0\" is in group 0 here and in 3 there");
}

// Plans and hashes of before there were groups stay what they were.
TEST(StorePlan, OneGroupIsNotWrittenAndSeveralComeBack) {
  EXPECT_EQ(ToJson(ValidPlan()).find("group"), std::string::npos);
  StorePlan plan = ValidPlan();
  plan.variables = *VariableTable::Build(
      {InGroup(2, Variable("a", {3, 5})), Variable("b", {17}, 1), Variable("c", {0, 9}),
       InGroup(2, Variable("d", {40})), InGroup(15, Variable("e", {16}, 1))},
      2);
  EXPECT_NE(plan.Hash(), ValidPlan().Hash());
  const Result<StorePlan> back = PlanFromJson(ToJson(plan));
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->variables, plan.variables);
  EXPECT_EQ(back->variables.groups(), 16);
  EXPECT_EQ(back->ShapeOf(0).num_groups, 16);
  // The padding behind a variable is as that.
  const auto text = [&](int shard) {
    std::string all;
    const ShardMemory shape = back->ShapeOf(shard);
    for (const GroupSpan& span : *shape.groups) {
      all += std::to_string(span.group) + "<" + std::to_string(span.end) + " ";
    }
    return all;
  };
  EXPECT_EQ(text(0), "2<64 ");
  EXPECT_EQ(text(1), "0<32 15<48 ");
  EXPECT_EQ(ValidPlan().ShapeOf(0).groups, nullptr);
}

TEST(StorePlan, RefusesGroupsThatCannotBe) {
  for (const int group : {-1, 16}) {
    const auto table = VariableTable::Build({InGroup(group, Variable("a", {1}))}, 1);
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(table.status().message(), "variable \"a\" is in group " + std::to_string(group) +
                                            ", and the groups are 0 to 15: join some groups");
  }
  StorePlan plan = ValidPlan();
  plan.mode = Mode::kHogwild;
  plan.on_device = true;
  EXPECT_TRUE(plan.Validate().ok());
  plan.variables = *VariableTable::Build({InGroup(1, Variable("a", {1}))}, 1);
  EXPECT_THAT(plan.Validate().message(), HasSubstr("--arena device) have one: use one group"));
}

}  // namespace
}  // namespace passel
