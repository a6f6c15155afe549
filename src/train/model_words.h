// model_words.h - a model in the words of a file's metadata.
//
//   model    "mlp" or "softmax"          loss  "sum" or "mean"
//   inputs   "784"                       clip  "true" or "false"
//   hidden   "100", "256,128" or ""      seed  "0", of the first values
//   classes  "10"                        normalization  "x/255", of a pixel; not in older files
//
// or, of a program's own model, model "own" and
//
//   variables  {"w":[784,10],"b":[]}, in their order
//
// Thread safety: no state.

#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "nn/model_config.h"

namespace passel {

/// Adds the words of `config`, or replaces them.
void AddModelWords(const ModelConfig& config, std::map<std::string, std::string>* words);

/// Errors: kDataLoss, naming the word that is missing or not understood.
Result<ModelConfig> ModelFromWords(const std::map<std::string, std::string>& words);

}  // namespace passel
