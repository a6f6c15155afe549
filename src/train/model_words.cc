#include "train/model_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"

namespace passel {
namespace {

// One word of a model, each way. `read` says whether it understood the text.
struct Word {
  const char* name;
  std::string (*write)(const ModelConfig& config);
  bool (*read)(std::string_view text, ModelConfig* config);
};

template <typename T>
bool ReadNumber(std::string_view text, T* number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && stop == text.data() + text.size();
}

template <typename T>
bool Take(Result<T> parsed, T* value) {
  if (!parsed.ok()) return false;
  *value = std::move(*parsed);
  return true;
}

constexpr Word kWords[] = {
    {"model",
     [](const ModelConfig& c) -> std::string {
       return c.kind == ModelKind::kMlp ? "mlp" : "softmax";
     },
     [](std::string_view text, ModelConfig* c) { return Take(ParseModelKind(text), &c->kind); }},
    {"inputs", [](const ModelConfig& c) { return std::to_string(c.inputs); },
     [](std::string_view text, ModelConfig* c) { return ReadNumber(text, &c->inputs); }},
    {"hidden", [](const ModelConfig& c) { return fmt::format("{}", fmt::join(c.hidden, ",")); },
     [](std::string_view text, ModelConfig* c) {
       return text.empty() || Take(ParseHiddenUnits(text), &c->hidden);
     }},
    {"classes", [](const ModelConfig& c) { return std::to_string(c.classes); },
     [](std::string_view text, ModelConfig* c) { return ReadNumber(text, &c->classes); }},
    {"loss",
     [](const ModelConfig& c) -> std::string {
       return c.loss == LossReduction::kSum ? "sum" : "mean";
     },
     [](std::string_view text, ModelConfig* c) {
       return Take(ParseLossReduction(text), &c->loss);
     }},
    {"clip", [](const ModelConfig& c) -> std::string { return c.clip ? "true" : "false"; },
     [](std::string_view text, ModelConfig* c) {
       c->clip = text == "true";
       return text == "true" || text == "false";
     }},
    {"seed", [](const ModelConfig& c) { return std::to_string(c.seed); },
     [](std::string_view text, ModelConfig* c) { return ReadNumber(text, &c->seed); }},
};

constexpr const char* kModelWord = "model";
constexpr const char* kOwnModel = "own";
constexpr const char* kVariablesWord = "variables";
// What becomes of a pixel before the model sees it (CpuKernels::gather); not in older files.
constexpr const char* kNormalizationWord = "normalization";
constexpr const char* kNormalization = "x/255";

Status WordNotUnderstood(const char* word, std::string_view text) {
  return DataLoss(
      fmt::format("the metadata say {} for \"{}\", which is not understood: use "
                  "another copy, or a newer passel",
                  Quoted(text), word));
}

// Nothing if the text is no list of variables.
std::optional<std::vector<VariableSpec>> ReadVariables(const std::string& text) {
  const Result<Json> json = ParseJson(kVariablesWord, text, 2);
  if (!json.ok() || json->object() == nullptr) return {};
  std::vector<VariableSpec> variables;
  for (const auto& [name, shape] : *json->object()) {
    if (shape.list() == nullptr) return {};
    VariableSpec& variable = variables.emplace_back();
    variable.name = name;
    for (const Json& dimension : *shape.list()) {
      const auto size = dimension.As<std::int64_t>();
      if (!size) return {};
      variable.shape.push_back(*size);
    }
  }
  return variables;
}

Result<ModelConfig> OwnFromWords(const std::map<std::string, std::string>& words) {
  const auto found = words.find(kVariablesWord);
  if (found == words.end()) {
    return DataLoss(fmt::format("the metadata have no \"{}\": use another copy", kVariablesWord));
  }
  std::optional<std::vector<VariableSpec>> variables = ReadVariables(found->second);
  if (!variables) return WordNotUnderstood(kVariablesWord, found->second);
  ModelConfig config;
  config.kind = ModelKind::kOwn;
  config.variables = std::move(*variables);
  return config;
}

Result<ModelConfig> KnownFromWords(const std::map<std::string, std::string>& words) {
  ModelConfig config;
  for (const Word& word : kWords) {
    const auto found = words.find(word.name);
    if (found == words.end()) {
      return DataLoss(fmt::format("the metadata have no \"{}\": use another copy", word.name));
    }
    if (!word.read(found->second, &config)) return WordNotUnderstood(word.name, found->second);
  }
  const auto normalization = words.find(kNormalizationWord);
  if (normalization != words.end() && normalization->second != kNormalization) {
    return WordNotUnderstood(kNormalizationWord, normalization->second);
  }
  return config;
}

}  // namespace

void AddModelWords(const ModelConfig& config, std::map<std::string, std::string>* words) {
  if (config.kind != ModelKind::kOwn) {
    for (const Word& word : kWords) (*words)[word.name] = word.write(config);
    (*words)[kNormalizationWord] = kNormalization;
    return;
  }
  Json variables = Json::MakeObject();
  for (const VariableSpec& spec : config.variables) variables.AddMember(spec.name, spec.shape);
  (*words)[kModelWord] = kOwnModel;
  (*words)[kVariablesWord] = variables.Write();
}

Result<ModelConfig> ModelFromWords(const std::map<std::string, std::string>& words) {
  const auto model = words.find(kModelWord);
  const bool own = model != words.end() && model->second == kOwnModel;
  Result<ModelConfig> config = own ? OwnFromWords(words) : KnownFromWords(words);
  if (!config.ok()) return config;
  if (const Status valid = config->Validate(); !valid.ok()) return DataLoss(valid.message());
  return config;
}

}  // namespace passel
