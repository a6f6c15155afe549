// saved_model.h - trained variables in a safetensors file that says which model they belong to: of
// a checkpoint (train/checkpoint_words.h) it has the values alone.
//
// Tensors have the model's names ("hid_w", "hid_b", "sm_w", "sm_b"); a variable that lay in parts
// on several ps tasks is one tensor again. Metadata: format kSavedModelFormat, the words of the
// model (train/model_words.h), checksums (io/checked_tensors.h), and what else the writer says.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "nn/model.h"
#include "nn/model_config.h"
#include "train/checkpoint_words.h"

namespace passel {

/// Errors: kInvalidArgument; those of writing the file: it then holds what it held before.
Status SaveModel(const std::string& path, const ModelConfig& model, ParameterParts parts,
                 const std::map<std::string, std::string>& metadata);

struct SavedModel {
  ModelConfig config;
  std::vector<std::vector<float>> values;  ///< one per variable of ModelVariables(config)
  std::map<std::string, std::string> metadata;

  std::vector<std::vector<RowPart>> Parts() const;
  /// Whether it is a saved model or a checkpoint of passel, so that the metadata mean what it means
  /// by them.
  bool IsOurs() const;
};

/// A file of ours, which says what model it has; a checkpoint (OpenCheckpointAt()), of which the
/// values are taken; or any file with the tensors of one of our models, as their shapes tell.
/// Tensors of other names are left alone.
/// Errors: kNotFound; kDataLoss; kInvalidArgument when the tensors are no model of ours, named, and
/// for a format of a newer passel.
Result<SavedModel> LoadModel(const std::string& path);

}  // namespace passel
