#include "base/json_fields.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"

namespace passel {

JsonReader::JsonReader(std::string_view document, const Json& json, std::string place)
    : document_(document), place_(std::move(place)), json_(json) {
  if (json.object() == nullptr) Refuse("an object { } is expected here");
}

void JsonReader::Refuse(std::string_view sentence) {
  if (!problem_.ok()) return;
  problem_ =
      InvalidArgument(place_.empty() ? fmt::format("{}: {}", document_, sentence)
                                     : fmt::format("{}: {}: {}", document_, place_, sentence));
}

const Json* JsonReader::Ask(std::string_view name, bool needed) {
  asked_.emplace_back(name);
  const Json* const json = json_.Find(name);
  if (json != nullptr && !json->is_null()) return json;
  if (needed && problem_.ok()) {
    Refuse(fmt::format("\"{}\" is missing: add it", name));
    missing_ = true;
  }
  return nullptr;
}

std::string JsonReader::PlaceOf(std::string_view name) const {
  return place_.empty() ? std::string(name) : fmt::format("{}.{}", place_, name);
}

void JsonReader::RefuseType(std::string_view name, std::string_view wanted) {
  Refuse(fmt::format("\"{}\" must be {}", name, wanted));
}

void JsonReader::RefuseNumber(std::string_view name, const std::string& limits, const Json& json) {
  Refuse(fmt::format("\"{}\" must be a whole number from {}, not {}", name, limits,
                     Printable(json.Write(-1, Json::Charset::kAscii), 64)));
}

void JsonReader::RefuseName(std::string_view name, std::string_view text) {
  Refuse(fmt::format("\"{}\" is {}, which is not known", name, Quoted(text)));
}

void JsonReader::CheckText(std::string_view name, std::string_view text, std::uint64_t most) {
  if (most == kNoJsonLimit || (text.size() <= most && Printable(text, text.size()) == text)) return;
  Refuse(fmt::format("\"{}\" has {} bytes: it takes up to {} of printable ASCII", name, text.size(),
                     most));
}

bool JsonReader::CountFits(std::string_view name, std::size_t count, std::uint64_t most) {
  if (count <= most) return true;
  Refuse(fmt::format("\"{}\" has {} elements: it takes at most {}", name, count, most));
  return false;
}

Status JsonReader::Finish() {
  if (may_have_others_ || json_.object() == nullptr || (!ok() && !missing_)) return problem_;
  for (const auto& [name, value] : *json_.object()) {
    if (std::ranges::find(asked_, name) != asked_.end()) continue;
    // What is missing may be this one, misspelt.
    problem_ = Status();
    const std::string_view nearest = NearestName(name, asked_);
    Refuse(
        fmt::format("the key {} is not known: {}", Quoted(name),
                    nearest.empty() ? "remove it" : fmt::format("did you mean \"{}\"?", nearest)));
    break;
  }
  return problem_;
}

}  // namespace passel
