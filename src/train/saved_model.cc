#include "train/saved_model.h"

#include <fmt/core.h>

#include <new>

#include "base/nvtx.h"
#include "io/checked_tensors.h"
#include "train/checkpoint_set.h"
#include "train/model_shape.h"
#include "train/model_words.h"

namespace passel {
namespace {

// Shape of a float32 tensor, or an error.
Result<std::vector<std::int64_t>> ShapeOf(const TensorFile& file, const std::string& name,
                                          std::size_t rank) {
  const TensorFile::Tensor* const tensor = file.Find(name);
  if (tensor == nullptr) {
    return InvalidArgument(
        fmt::format("{} has no tensor \"{}\": it is no model of passel", file.path(), name));
  }
  if (tensor->dtype != DType::kF32 || tensor->shape.size() != rank) {
    return InvalidArgument(fmt::format("tensor \"{}\" of {} is {} of rank {}, not F32 of rank {}",
                                       name, file.path(), DTypeName(tensor->dtype),
                                       tensor->shape.size(), rank));
  }
  return tensor->shape;
}

Result<ModelConfig> ConfigOf(const TensorFile& file) {
  const bool ours = file.Word(kFormatKey) == kSavedModelFormat;
  // One of ours that is damaged where it says so must not pass for one of another program.
  if (ours || HasChecksums(file)) PASSEL_RETURN_IF_ERROR(CheckTensors(file));
  if (const Status known = CheckFormat(file.metadata()); !known.ok()) {
    return known.WithContext(file.path());
  }
  if (ours) {
    Result<ModelConfig> config = ModelFromWords(file.metadata());
    return config.ok() ? config : config.status().WithContext(file.path());
  }
  // The shape of the model follows from its tensors.
  NamedShapes shapes;
  shapes.has = [&](const std::string& name) { return file.Find(name) != nullptr; };
  shapes.of = [&](const std::string& name, std::size_t rank) { return ShapeOf(file, name, rank); };
  PASSEL_ASSIGN_OR_RETURN(ModelConfig config, InferModel(shapes));
  // Another program may mean something else by it, and who only evaluates needs none.
  if (const auto known = ParseLossReduction(file.Word("loss")); known.ok()) config.loss = *known;
  return config;
}

Result<SavedModel> FromFile(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::Open(path));
  SavedModel model;
  PASSEL_ASSIGN_OR_RETURN(model.config, ConfigOf(file));
  for (const VariableSpec& spec : ModelVariables(model.config)) {
    PASSEL_ASSIGN_OR_RETURN(const std::vector<std::int64_t> shape,
                            ShapeOf(file, spec.name, spec.shape.size()));
    if (shape != spec.shape) {
      return InvalidArgument(
          fmt::format("tensor \"{}\" of {} has {} rows, the layers around it need "
                      "{}",
                      spec.name, path, shape[0], spec.shape[0]));
    }
    std::vector<float>& values = model.values.emplace_back(spec.elements());
    PASSEL_RETURN_IF_ERROR(
        file.Read(*file.Find(spec.name), 0, std::as_writable_bytes(std::span(values))));
  }
  model.metadata = file.metadata();
  return model;
}

Result<SavedModel> FromCheckpoint(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const CheckpointSet set, OpenCheckpointAt(path));
  SavedModel model;
  model.config = set.words().model;
  for (const VariableSpec& spec : ModelVariables(model.config)) {
    VariableInfo whole;
    whole.name = whole.logical = spec.name;
    whole.shape = spec.shape;
    whole.elements = spec.elements();
    PASSEL_RETURN_IF_ERROR(set.Fill(whole, 0, model.values.emplace_back(spec.elements())));
  }
  model.metadata = set.metadata();
  return model;
}

}  // namespace

Status SaveModel(const std::string& path, const ModelConfig& model, ParameterParts parts,
                 const std::map<std::string, std::string>& metadata) {
  const std::vector<VariableSpec> specs = ModelVariables(model);
  PASSEL_CHECK(parts.size() == specs.size(), "one list of parts for each variable");
  std::size_t bytes = 0;
  for (const VariableSpec& spec : specs) bytes += spec.elements() * sizeof(float);
  const nvtx::Range range(nvtx::Event::kSave, static_cast<std::int64_t>(bytes));
  // A copy: others may still be training, and a file must hold what was checked.
  std::vector<std::vector<float>> values(specs.size());
  std::vector<TensorView> tensors;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (const RowPart& part : parts[i]) {
      values[i].insert(values[i].end(), part.data, part.data + part.rows * specs[i].cols());
    }
    PASSEL_CHECK(values[i].size() == specs[i].elements(), "the parts cover their variable");
    tensors.push_back({specs[i].name, DType::kF32, specs[i].shape,
                       std::as_bytes(std::span<const float>(values[i]))});
  }
  SafetensorsMetadata all(metadata.begin(), metadata.end());
  all[kFormatKey] = kSavedModelFormat;
  AddModelWords(model, &all);
  return WriteCheckedTensors(path, tensors, all);
}

bool SavedModel::IsOurs() const {
  const auto format = metadata.find(kFormatKey);
  return format != metadata.end() &&
         (format->second == kSavedModelFormat || format->second == kFormerModelFormat);
}

std::vector<std::vector<RowPart>> SavedModel::Parts() const {
  const std::vector<VariableSpec> specs = ModelVariables(config);
  std::vector<std::vector<RowPart>> parts;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    parts.push_back({RowPart{values[i].data(), 0, specs[i].rows()}});
  }
  return parts;
}

Result<SavedModel> LoadModel(const std::string& path) {
  try {
    return NamesCheckpoint(path) ? FromCheckpoint(path) : FromFile(path);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(
        fmt::format("there is not enough memory for the values of {}: free some", path));
  }
}

}  // namespace passel
