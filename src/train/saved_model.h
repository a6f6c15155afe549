// saved_model.h - trained variables in a safetensors file that says which model they belong to.
//
// Tensors have the model's names ("hid_w", "hid_b", "sm_w", "sm_b"); a variable that lay in parts
// on several ps tasks is one tensor again. Metadata: format kSavedModelFormat, model, loss,
// global_step, and what else the writer says.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "nn/model.h"
#include "nn/model_config.h"

namespace passel {

/// Metadata "format" of files that SaveModel() wrote.
inline constexpr const char* kSavedModelFormat = "passel-model-1";

/// Errors: kInvalidArgument; those of writing the file: it then holds what it held before.
Status SaveModel(const std::string& path, const ModelConfig& model, ParameterParts parts,
                 const std::map<std::string, std::string>& metadata);

struct SavedModel {
  ModelConfig config;
  std::vector<std::vector<float>> values;  ///< one per variable of ModelVariables(config)
  std::map<std::string, std::string> metadata;

  std::vector<std::vector<RowPart>> Parts() const;
};

/// A file of ours, or any file with the tensors of one of our models: shapes tell which.
/// Errors: kNotFound; kDataLoss; kInvalidArgument when the tensors are no model of ours, named.
Result<SavedModel> LoadModel(const std::string& path);

}  // namespace passel
