#include "train/model_graph.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace passel {
namespace {

constexpr std::int64_t kAnyBatch = -1;
constexpr const char* kVariableOp = "VariableV2";

std::string PsDevice(int shard, bool has_ps) {
  return has_ps ? fmt::format("/job:ps/task:{}", shard) : "";
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", size);
  }
  return text;
}

// "hid_w" is of the layer "hid"; the one layer of softmax regression has variables without a name.
std::string LayerOf(const VariableSpec& weights) {
  const std::size_t end = weights.name.rfind("_w");
  return end == std::string::npos ? "softmax" : weights.name.substr(0, end);
}

class GraphMaker {
 public:
  GraphMaker(const ModelConfig& model, const ModelLayout& layout, const GraphPlaces& places)
      : model_(model),
        layout_(layout),
        places_(places),
        worker_(places.has_ps ? "/job:worker" : ""),
        variables_(ModelVariables(model)) {}

  Graph Make() {
    graph_.push_back(
        {"global_step", kVariableOp, PsDevice(0, places_.has_ps), {}, Shape{}, Type::kInt64});
    for (std::size_t v = 0; v < variables_.size(); ++v) AddVariable(v);
    Compute("x", "Placeholder", {}, {kAnyBatch, Width(model_.inputs)});
    Compute("labels", "Placeholder", {}, {kAnyBatch}, Type::kInt64);
    std::string top = "x";
    for (std::size_t v = 0; v < variables_.size(); v += 2) {
      top = AddLayer(v, top, v + 2 == variables_.size());
    }
    Compute("cross_entropy", "SparseSoftmaxCrossEntropyWithLogits", {top, "labels"}, {kAnyBatch});
    const bool sum = model_.loss == LossReduction::kSum;
    Compute("loss", sum ? "Sum" : "Mean", {"cross_entropy"}, {});
    Compute("accuracy/InTopK", "InTopK", {top, "labels"}, {kAnyBatch}, Type::kBool);
    Compute("accuracy/Mean", "Mean", {"accuracy/InTopK"}, {});
    AddUpdate();
    return std::move(graph_);
  }

 private:
  using Shape = std::vector<std::int64_t>;
  using Type = GraphNode::Type;

  static std::int64_t Width(std::size_t size) { return static_cast<std::int64_t>(size); }

  void Compute(std::string name, std::string op, std::vector<std::string> inputs, Shape shape,
               Type type = Type::kFloat) {
    graph_.push_back(
        {std::move(name), std::move(op), worker_, std::move(inputs), std::move(shape), type});
  }

  void AddVariable(std::size_t v) {
    const VariableSpec& spec = variables_[v];
    std::vector<std::string> parts;
    for (const VarId id : layout_.parts()[v]) {
      const VariableInfo& part = layout_.table()[id];
      graph_.push_back(
          {part.name, kVariableOp, PsDevice(part.shard, places_.has_ps), {}, part.shape});
      parts.push_back(part.name);
    }
    if (parts.size() > 1) Compute(spec.name, "ConcatV2", std::move(parts), spec.shape);
  }

  // Returns the node that the next layer sees.
  std::string AddLayer(std::size_t v, const std::string& input, bool last) {
    const std::string layer = LayerOf(variables_[v]) + "/";
    const Shape shape = {kAnyBatch, Width(variables_[v].cols())};
    Compute(layer + "MatMul", "MatMul", {input, variables_[v].name}, shape);
    Compute(layer + "BiasAdd", "BiasAdd", {layer + "MatMul", variables_[v + 1].name}, shape);
    if (last) return layer + "BiasAdd";
    Compute(layer + "Relu", "Relu", {layer + "BiasAdd"}, shape);
    return layer + "Relu";
  }

  void AddUpdate() {
    std::vector<std::string> inputs = {"loss", "global_step"};
    for (const VariableSpec& variable : variables_) inputs.push_back(variable.name);
    graph_.push_back({"train/" + places_.optimizer, "Apply", worker_, std::move(inputs), {}});
  }

  const ModelConfig& model_;
  const ModelLayout& layout_;
  const GraphPlaces& places_;
  const std::string worker_;
  const std::vector<VariableSpec> variables_;
  Graph graph_;
};

}  // namespace

Graph ModelGraph(const ModelConfig& model, const ModelLayout& layout, const GraphPlaces& places) {
  return GraphMaker(model, layout, places).Make();
}

std::string VariablesInMarkdown(const VariableTable& table, bool has_ps) {
  std::string text = "| variable | shape | elements | device |\n|---|---|---|---|\n";
  for (const VariableInfo& variable : table.all()) {
    text +=
        fmt::format("| {} | {} | {} | {} |\n", variable.name, ShapeText(variable.shape),
                    variable.elements, has_ps ? PsDevice(variable.shard, has_ps) : "this process");
  }
  return text;
}

}  // namespace passel
