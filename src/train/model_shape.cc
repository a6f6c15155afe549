#include "train/model_shape.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace passel {

Result<ModelConfig> InferModel(const NamedShapes& shapes) {
  const bool softmax = shapes.has("w");
  ModelConfig config = DefaultModelConfig(softmax ? ModelKind::kSoftmax : ModelKind::kMlp);
  std::string last = "w";
  if (!softmax) {
    last = "sm_w";
    for (int layer = 1;; ++layer) {
      const std::string name = layer == 1 ? "hid_w" : fmt::format("hid{}_w", layer);
      if (layer > 1 && !shapes.has(name)) break;
      PASSEL_ASSIGN_OR_RETURN(const std::vector<std::int64_t> shape, shapes.of(name, 2));
      if (layer == 1) config.inputs = static_cast<std::size_t>(shape[0]);
      config.hidden.resize(static_cast<std::size_t>(layer - 1));
      config.hidden.push_back(static_cast<std::size_t>(shape[1]));
    }
  }
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::int64_t> shape, shapes.of(last, 2));
  if (softmax) config.inputs = static_cast<std::size_t>(shape[0]);
  config.classes = static_cast<std::size_t>(shape[1]);
  PASSEL_RETURN_IF_ERROR(config.Validate());
  return config;
}

Result<ModelConfig> InferModel(const VariableTable& table) {
  std::map<std::string, std::vector<std::int64_t>> whole;
  for (const VariableInfo& part : table.all()) {
    if (part.shape.empty()) continue;  // a scalar: no variable of ours
    std::vector<std::int64_t>& shape = whole[part.logical];
    const std::int64_t rows = part.first_row + part.shape[0];
    if (shape.empty()) {
      shape = part.shape;
      shape[0] = rows;
    }
    shape[0] = std::max(shape[0], rows);
  }
  NamedShapes shapes;
  shapes.has = [&](const std::string& name) { return whole.contains(name); };
  shapes.of = [&](const std::string& name, std::size_t rank) -> Result<std::vector<std::int64_t>> {
    const auto found = whole.find(name);
    if (found == whole.end() || found->second.size() != rank) {
      return InvalidArgument(fmt::format(
          "the job has no variable \"{}\" of rank {}: its model is none of passel", name, rank));
    }
    return found->second;
  };
  return InferModel(shapes);
}

}  // namespace passel
