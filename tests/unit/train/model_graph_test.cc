#include "train/model_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace passel {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

std::map<std::string, GraphNode> NodesOf(const Graph& graph) {
  std::map<std::string, GraphNode> nodes;
  for (const GraphNode& node : graph) {
    EXPECT_TRUE(nodes.emplace(node.name, node).second) << node.name << " is there twice";
  }
  for (const auto& [name, node] : nodes) {
    for (const std::string& input : node.inputs) EXPECT_THAT(nodes, Contains(Key(input))) << name;
  }
  return nodes;
}

ModelConfig SmallModel(ModelKind kind) {
  ModelConfig model = DefaultModelConfig(kind);
  model.inputs = 784;
  model.classes = 10;
  return model;
}

TEST(ModelGraphTest, LayersFollowOneAnotherAndPartsAreOnTheirDevices) {
  ModelConfig model = SmallModel(ModelKind::kMlp);
  model.hidden = {20, 30};
  PlacementOptions placement;
  placement.partitioner = Partitioner::FixedSize(2);
  const ModelLayout layout =
      ModelLayout::Make(model, PlaceModel(model, 2, placement).value()).value();
  const auto nodes = NodesOf(ModelGraph(model, layout, {true, "sgd"}));
  // The global step has its turn first.
  EXPECT_EQ(nodes.at("global_step").device, "/job:ps/task:0");
  EXPECT_EQ(nodes.at("hid2_w/part_0").device, "/job:ps/task:1");
  EXPECT_EQ(nodes.at("hid2_w/part_1").device, "/job:ps/task:0");
  EXPECT_EQ(nodes.at("hid2_w/part_1").shape, (std::vector<std::int64_t>{10, 30}));
  EXPECT_THAT(nodes.at("hid2_w").inputs, ElementsAre("hid2_w/part_0", "hid2_w/part_1"));
  EXPECT_THAT(nodes.at("hid/MatMul").inputs, ElementsAre("x", "hid_w"));
  EXPECT_THAT(nodes.at("hid2/MatMul").inputs, ElementsAre("hid/Relu", "hid2_w"));
  EXPECT_EQ(nodes.at("hid2/MatMul").device, "/job:worker");
  EXPECT_THAT(nodes.at("cross_entropy").inputs, ElementsAre("sm/BiasAdd", "labels"));
  EXPECT_EQ(nodes.at("loss").op, "Sum");
  EXPECT_THAT(nodes.at("train/sgd").inputs, Contains("sm_b"));
  EXPECT_THAT(VariablesInMarkdown(layout.table(), true),
              HasSubstr("\n| hid2_w/part_1 | 10 x 30 | 300 | /job:ps/task:0 |\n"));
}

TEST(ModelGraphTest, OneProcessAloneNamesNoDevices) {
  const ModelConfig model = SmallModel(ModelKind::kSoftmax);
  const ModelLayout layout = ModelLayout::Make(model, PlaceModel(model, 1, {}).value()).value();
  const auto nodes = NodesOf(ModelGraph(model, layout, {false, "adam"}));
  for (const auto& [name, node] : nodes) EXPECT_EQ(node.device, "") << name;
  EXPECT_THAT(nodes.at("cross_entropy").inputs, ElementsAre("softmax/BiasAdd", "labels"));
  EXPECT_EQ(nodes.at("loss").op, "Mean");
}

}  // namespace
}  // namespace passel
