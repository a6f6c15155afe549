#include "train/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/model_plan.h"

namespace passel {
namespace {

using ::testing::HasSubstr;

ModelConfig Config(std::vector<std::size_t> hidden) {
  ModelConfig config = DefaultModelConfig(hidden.empty() ? ModelKind::kSoftmax : ModelKind::kMlp);
  config.inputs = 50;
  config.classes = 7;
  config.hidden = std::move(hidden);
  return config;
}

TEST(ModelShapeTest, ModelOfAJobIsFoundHoweverItIsPlaced) {
  for (const auto& hidden : std::vector<std::vector<std::size_t>>{{}, {20}, {30, 20, 10}}) {
    for (const int shards : {1, 3}) {
      for (const Partitioner& partitioner : {Partitioner::None(), Partitioner::FixedSize(4)}) {
        PlacementOptions placement;
        placement.partitioner = partitioner;
        const auto table = PlaceModel(Config(hidden), shards, placement);
        ASSERT_TRUE(table.ok()) << table.status().message();
        const auto model = InferModel(*table);
        ASSERT_TRUE(model.ok()) << model.status().message();
        EXPECT_EQ(model->kind, Config(hidden).kind);
        EXPECT_EQ(model->clip, Config(hidden).clip);
        EXPECT_EQ(model->inputs, 50u);
        EXPECT_EQ(model->classes, 7u);
        EXPECT_EQ(model->hidden, hidden);
        EXPECT_TRUE(ModelLayout::Make(*model, *table).ok());
      }
    }
  }
}

TEST(ModelShapeTest, VariablesOfNoModelAreRefused) {
  const auto refuse = [](std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes) {
    std::vector<VariableInfo> variables;
    for (const auto& [name, shape] : shapes) {
      VariableInfo v;
      v.name = v.logical = name;
      v.shape = shape;
      variables.push_back(v);
    }
    const auto model = InferModel(*VariableTable::Build(variables, 1));
    EXPECT_EQ(model.status().code(), Code::kInvalidArgument);
    return model.status().message();
  };
  EXPECT_THAT(refuse({{"v", {3, 4}}}), HasSubstr("\"hid_w\""));
  EXPECT_THAT(refuse({{"w", {3}}}), HasSubstr("\"w\" of rank 2"));
  EXPECT_THAT(refuse({{"hid_w", {3, 4}}}), HasSubstr("\"sm_w\""));
  EXPECT_FALSE(refuse({{"w", {3, 5000}}}).empty()) << "too many classes";
}

}  // namespace
}  // namespace passel
