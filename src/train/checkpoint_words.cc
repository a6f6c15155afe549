#include "train/checkpoint_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/json_fields.h"
#include "base/text.h"
#include "train/model_words.h"

namespace passel {

void JsonMembers(auto& members, JsonPart<GroupRates> auto& rates) {
  members("learning_rate", rates.learning_rate);
  members("weight_decay", rates.weight_decay);
}

namespace {

constexpr const char* kSlotsKey = "slots";
constexpr const char* kRatesKey = "rates";
constexpr const char* kSettingsKey = "settings";
constexpr const char* kDataKey = "data";
constexpr const char* kClusterKey = "cluster";
constexpr const char* kExactKey = "exact";
constexpr std::string_view kFamily = "passel-";

struct ClusterSize {
  int ps = 0, workers = 0;
  int places = 0;  // 0: as many as workers
};
void JsonMembers(auto& members, JsonPart<ClusterSize> auto& cluster) {
  members("ps", cluster.ps, 1 << 20);
  members("workers", cluster.workers, 1 << 20);
  members.IfAny("places", cluster.places, 1 << 20);
}

struct RatesWord {
  std::vector<GroupRates> groups;
};

void JsonMembers(auto& members, JsonPart<RatesWord> auto& rates) {
  members("groups", rates.groups, kMaxGroups);
}

Status NotUnderstood(const char* key, std::string_view text) {
  return DataLoss(
      fmt::format("the metadata say {} for \"{}\", which is not understood: use another copy, or a "
                  "newer passel",
                  Quoted(text), key));
}

Result<std::string> WordOf(const Words& words, const char* key) {
  const auto found = words.find(key);
  if (found != words.end()) return found->second;
  return DataLoss(fmt::format("the metadata have no \"{}\": use another copy", key));
}

Result<Json> ObjectOf(const Words& words, const char* key) {
  PASSEL_ASSIGN_OR_RETURN(const std::string text, WordOf(words, key));
  Result<Json> json = ParseJson(key, text, kMaxJsonDepth);
  if (!json.ok() || json->object() == nullptr) return NotUnderstood(key, text);
  return json;
}

// Takes a whole number, and the spaces before it, off the begin of `text`.
template <typename T>
bool TakeWhole(std::string_view* text, T* number) {
  text->remove_prefix(std::min(text->find_first_not_of(' '), text->size()));
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<std::size_t>(stop - text->data()));
  return true;
}

}  // namespace

Status CheckFormat(const Words& words) {
  const auto format = words.find(kFormatKey);
  if (format == words.end() || !format->second.starts_with(kFamily) ||
      format->second == kSavedModelFormat || format->second == kFormerModelFormat) {
    return {};
  }
  return InvalidArgument(
      fmt::format("the format {} is of a newer passel than this, which knows {}: "
                  "use that one",
                  Quoted(format->second), kSavedModelFormat));
}

void AddWords(const CheckpointWords& checkpoint, Words* words) {
  AddModelWords(checkpoint.model, words);
  (*words)[kFormatKey] = kSavedModelFormat;
  (*words)[kModeKey] = checkpoint.mode;
  (*words)[kSettingsKey] = checkpoint.settings.Write();
  (*words)[kDataKey] = checkpoint.data.Write();
  const int places = checkpoint.places == checkpoint.workers ? 0 : checkpoint.places;
  (*words)[kClusterKey] = JsonOf(ClusterSize{checkpoint.ps, checkpoint.workers, places}).Write();
  (*words)[kExactKey] = checkpoint.exact ? "true" : "false";
}

Result<CheckpointWords> CheckpointFromWords(const Words& words) {
  CheckpointWords checkpoint;
  PASSEL_ASSIGN_OR_RETURN(checkpoint.model, ModelFromWords(words));
  PASSEL_ASSIGN_OR_RETURN(checkpoint.mode, WordOf(words, kModeKey));
  PASSEL_ASSIGN_OR_RETURN(checkpoint.settings, ObjectOf(words, kSettingsKey));
  for (const auto& [name, value] : *checkpoint.settings.object()) {
    if (value.text() == nullptr) return NotUnderstood(kSettingsKey, name);
  }
  PASSEL_ASSIGN_OR_RETURN(checkpoint.data, ObjectOf(words, kDataKey));
  PASSEL_ASSIGN_OR_RETURN(const Json cluster, ObjectOf(words, kClusterKey));
  ClusterSize size;
  if (!ReadJson(kClusterKey, cluster, &size).ok()) {
    return NotUnderstood(kClusterKey, cluster.Write());
  }
  checkpoint.ps = size.ps;
  checkpoint.workers = size.workers;
  checkpoint.places = size.places == 0 ? size.workers : size.places;
  PASSEL_ASSIGN_OR_RETURN(const std::string exact, WordOf(words, kExactKey));
  if (exact != "true" && exact != "false") return NotUnderstood(kExactKey, exact);
  checkpoint.exact = exact == "true";
  return checkpoint;
}

void AddWords(const OptimizerWords& optimizer, Words* words) {
  (*words)[kOptimizerKey] = optimizer.name;
  (*words)[kSlotsKey] = fmt::format("{}", fmt::join(optimizer.slots, ","));
}

Result<OptimizerWords> OptimizerFromWords(const Words& words) {
  OptimizerWords optimizer;
  PASSEL_ASSIGN_OR_RETURN(optimizer.name, WordOf(words, kOptimizerKey));
  PASSEL_ASSIGN_OR_RETURN(const std::string slots, WordOf(words, kSlotsKey));
  std::string_view rest = slots;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    if (comma == 0 || comma + 1 == rest.size()) return NotUnderstood(kSlotsKey, slots);
    optimizer.slots.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return optimizer;
}

void AddWords(std::span<const GroupRates> rates, Words* words) {
  if (rates.empty()) return;
  (*words)[kRatesKey] = JsonOf(RatesWord{{rates.begin(), rates.end()}}).Write();
}

Result<std::vector<GroupRates>> RatesFromWords(const Words& words) {
  if (!words.contains(kRatesKey)) return std::vector<GroupRates>();
  PASSEL_ASSIGN_OR_RETURN(const Json json, ObjectOf(words, kRatesKey));
  RatesWord rates;
  if (!ReadJson(kRatesKey, json, &rates).ok() || rates.groups.empty()) {
    return NotUnderstood(kRatesKey, words.at(kRatesKey));
  }
  return std::move(rates.groups);
}

std::string SlotTensor(std::string_view variable, std::string_view slot) {
  return fmt::format("{}/{}", variable, slot);
}

std::string RowsKey(std::string_view tensor) { return fmt::format("rows/{}", tensor); }

std::string ToText(const RowsOf& rows) { return fmt::format("{} {}", rows.first, rows.all); }

std::optional<RowsOf> ParseRows(std::string_view text) {
  RowsOf rows;
  if (!TakeWhole(&text, &rows.first) || !TakeWhole(&text, &rows.all) || !text.empty()) return {};
  if (rows.first < 0 || rows.all <= rows.first) return {};
  return rows;
}

std::string LastStepText(std::int64_t step) { return fmt::format("{:<16}", step); }

std::string ToText(const MixedBlocks& count) {
  const std::string blocks = std::to_string(count.blocks);
  return fmt::format("{:>{}} of {}", count.mixed, blocks.size(), blocks);
}

std::optional<MixedBlocks> ParseMixedBlocks(std::string_view text) {
  constexpr std::string_view kOf = " of";
  MixedBlocks count;
  if (!TakeWhole(&text, &count.mixed) || !text.starts_with(kOf)) return {};
  text.remove_prefix(kOf.size());
  if (!TakeWhole(&text, &count.blocks) || !text.empty() || count.mixed > count.blocks) return {};
  return count;
}

}  // namespace passel
