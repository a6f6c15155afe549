#include "train/model_plan.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/open_store.h"

namespace passel {
namespace {

ModelConfig Mlp() {
  ModelConfig config = DefaultModelConfig(ModelKind::kMlp);
  config.inputs = 20;
  config.classes = 3;
  config.hidden = {7, 5};
  config.seed = 11;
  return config;
}

VariableTable Place(const ModelConfig& model, int shards, const Partitioner& partitioner,
                    PlacementStrategy strategy = PlacementStrategy::kRoundRobin) {
  PlacementOptions options;
  options.partitioner = partitioner;
  options.strategy = strategy;
  Result<VariableTable> table = PlaceModel(model, shards, options);
  EXPECT_TRUE(table.ok()) << table.status().message();
  return *table;
}

std::string Describe(const VariableTable& table) {
  std::string text;
  for (const VariableInfo& v : table.all()) {
    text += fmt::format("{}@{}+{} ", v.name, v.shard, v.first_row);
  }
  return text;
}

// global_step is created first and takes the first turn of the round robin, on ps 0.
TEST(PlaceModelTest, RoundRobinCountsGlobalStepFirst) {
  EXPECT_EQ(Describe(Place(Mlp(), 2, Partitioner::None())),
            "hid_w@1+0 hid_b@0+0 hid2_w@1+0 hid2_b@0+0 sm_w@1+0 sm_b@0+0 ");
  EXPECT_EQ(Describe(Place(Mlp(), 3, Partitioner::None())),
            "hid_w@1+0 hid_b@2+0 hid2_w@0+0 hid2_b@1+0 sm_w@2+0 sm_b@0+0 ");
}

// Variables of 4, 4, 8 and 8 bytes, each to the ps with the fewest so far: what global_step counts
// for decides.
TEST(PlaceModelTest, BytesOfGlobalStepCountInGreedyPlacement) {
  ModelConfig model = Mlp();
  model.inputs = 1;
  model.hidden = {1};
  model.classes = 2;
  PlacementOptions options;
  options.strategy = PlacementStrategy::kGreedyBytes;
  EXPECT_EQ(Describe(*PlaceModel(model, 2, options)), "hid_w@1+0 hid_b@0+0 sm_w@1+0 sm_b@0+0 ");
  options.global_step_bytes = 8;
  EXPECT_EQ(Describe(*PlaceModel(model, 2, options)), "hid_w@1+0 hid_b@1+0 sm_w@0+0 sm_b@1+0 ");
}

TEST(PlaceModelTest, PinsAreCheckedWithoutData) {
  PlacementOptions options;
  options.pins = {{"hid_w", *ParseDevice("/job:ps/task:1")}};
  ModelConfig model = Mlp();
  model.inputs = model.classes = 0;
  EXPECT_TRUE(CheckPins(model, 2, options).ok());
  EXPECT_THAT(CheckPins(model, 1, options).message(), ::testing::HasSubstr("0 to 0, not 1"));
  options.pins[0].variable = "global_step";
  EXPECT_THAT(CheckPins(model, 2, options).message(), ::testing::HasSubstr("only those"));
}

TEST(PlaceModelTest, PartsAreNamedAndTakeTurns) {
  EXPECT_EQ(Describe(Place(Mlp(), 2, Partitioner::FixedSize(3))),
            "hid_w/part_0@1+0 hid_w/part_1@0+7 hid_w/part_2@1+14 "
            "hid_b/part_0@0+0 hid_b/part_1@1+3 hid_b/part_2@0+5 "
            "hid2_w/part_0@1+0 hid2_w/part_1@0+3 hid2_w/part_2@1+5 "
            "hid2_b/part_0@0+0 hid2_b/part_1@1+2 hid2_b/part_2@0+4 "
            "sm_w/part_0@1+0 sm_w/part_1@0+2 sm_w/part_2@1+4 "
            "sm_b/part_0@0+0 sm_b/part_1@1+1 sm_b/part_2@0+2 ");
}

struct Way {
  const char* name;
  int shards;
  Partitioner partitioner;
  PlacementStrategy strategy = PlacementStrategy::kRoundRobin;
};
std::vector<Way> Ways() {
  return {{"one shard", 1, Partitioner::None()},
          {"three shards", 3, Partitioner::None()},
          {"parts", 1, Partitioner::FixedSize(3)},
          {"parts on shards", 3, Partitioner::FixedSize(2)},
          {"rows on shards", 2, Partitioner::FixedSize(1000)},
          {"by bytes", 4, Partitioner::MinMax(4, 16), PlacementStrategy::kGreedyBytes}};
}

// The first values that the chief writes are those of the model, whatever lies where; and the parts
// that a worker binds lead back to them, element by element.
TEST(ModelLayoutTest, PartsOfEveryWayLeadToTheRightMemory) {
  const ModelConfig model = Mlp();
  const std::vector<VariableSpec> specs = ModelVariables(model);
  for (const Way& way : Ways()) {
    SCOPED_TRACE(way.name);
    StorePlan plan;
    plan.optimizer.kind = OptimizerKind::kSgd;
    plan.variables = Place(model, way.shards, way.partitioner, way.strategy);
    ASSERT_TRUE(plan.Validate().ok());
    const auto arena = InProcessArena::Create(plan).value();
    const auto store = arena->Open(0, {}).value();
    const ModelLayout layout = ModelLayout::Make(model, store->variables()).value();
    ASSERT_TRUE(InitializeStore(model, layout, *store).ok());
    const ParamView view = store->Pull(PullMode::kView).value();
    std::vector<std::vector<RowPart>> parts, by_shard;
    layout.Bind(view, &parts);
    std::vector<const float*> shards;
    for (int s = 0; s < way.shards; ++s) shards.push_back(arena->shard(s).values);
    layout.Bind(shards, &by_shard);
    const GradientBuffer gradient = store->LendGradient();
    std::vector<std::vector<MutableRowPart>> gradients;
    layout.Bind(gradient, &gradients);
    ASSERT_EQ(parts.size(), specs.size());
    ASSERT_EQ(gradients.size(), specs.size());
    for (std::size_t v = 0; v < specs.size(); ++v) {
      std::vector<float> expected(specs[v].elements());
      InitializeVariable(model, v, 0, expected);
      std::size_t row = 0;
      for (std::size_t p = 0; p < parts[v].size(); ++p) {
        const RowPart& part = parts[v][p];
        ASSERT_EQ(part.first_row, row);
        ASSERT_EQ(by_shard[v][p].data, part.data);
        ASSERT_EQ(gradients[v][p].first_row, part.first_row);
        ASSERT_EQ(gradients[v][p].rows, part.rows);
        for (std::size_t i = 0; i < part.rows * specs[v].cols(); ++i) {
          ASSERT_EQ(part.data[i], expected[row * specs[v].cols() + i]) << specs[v].name;
          // Its own number in each element of the gradient: found again below.
          gradients[v][p].data[i] = static_cast<float>(1000 * (v + 1) + row * specs[v].cols() + i);
        }
        row += part.rows;
      }
      ASSERT_EQ(row, specs[v].rows());
    }
    // No two parts share memory: each element still holds its own number.
    for (std::size_t v = 0; v < specs.size(); ++v) {
      for (const MutableRowPart& part : gradients[v]) {
        for (std::size_t i = 0; i < part.rows * specs[v].cols(); ++i) {
          ASSERT_EQ(part.data[i],
                    static_cast<float>(1000 * (v + 1) + part.first_row * specs[v].cols() + i));
        }
      }
    }
    // And the store applies it to the same places: plain descent by the gradient.
    const Ticket ticket =
        store->Push(gradient, view.stamp(), Deadline::After(std::chrono::seconds(5))).value();
    ASSERT_TRUE(store->Wait(ticket, Deadline::After(std::chrono::seconds(5))).ok());
    const float rate = static_cast<float>(plan.optimizer.learning_rate);
    for (std::size_t v = 0; v < specs.size(); ++v) {
      std::vector<float> expected(specs[v].elements());
      InitializeVariable(model, v, 0, expected);
      for (const RowPart& part : parts[v]) {
        for (std::size_t i = 0; i < part.rows * specs[v].cols(); ++i) {
          const std::size_t element = part.first_row * specs[v].cols() + i;
          const float g = static_cast<float>(1000 * (v + 1) + element);
          ASSERT_NEAR(part.data[i], expected[element] - rate * g, 1e-6F * std::abs(rate * g));
        }
      }
    }
  }
}

TEST(ModelLayoutTest, VariablesOfAnotherModelAreNamed) {
  const auto error = [](const ModelConfig& model, const VariableTable& table) {
    const Result<ModelLayout> layout = ModelLayout::Make(model, table);
    EXPECT_EQ(layout.status().code(), Code::kInvalidArgument);
    return layout.status().message();
  };
  ModelConfig other = Mlp();
  other.hidden = {7};
  EXPECT_THAT(error(other, Place(Mlp(), 2, Partitioner::None())), ::testing::HasSubstr("hid2_w"));
  EXPECT_THAT(error(Mlp(), Place(other, 2, Partitioner::None())), ::testing::HasSubstr("hid2_w"));
  other = Mlp();
  other.classes = 4;
  EXPECT_THAT(error(other, Place(Mlp(), 2, Partitioner::None())), ::testing::HasSubstr("sm_w"));
  other = Mlp();
  other.inputs = 21;  // the parts end one row too early
  EXPECT_THAT(error(other, Place(Mlp(), 2, Partitioner::FixedSize(3))),
              ::testing::HasSubstr("hid_w"));
}

}  // namespace
}  // namespace passel
