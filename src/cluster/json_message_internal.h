// json_message_internal.h - what tasks say to each other is JSON objects: how they are read, and
// how an error travels. For .cc files only: it is a heavy header.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace passel {

/// Errors: kDataLoss unless `text` is one JSON object, without a key that comes twice.
Result<nlohmann::json> ParseMessage(std::string_view text);

/// A field of the wanted type and in its range, or `fallback`.
template <typename T>
T Field(const nlohmann::json& json, const char* key, T fallback) {
  const auto found = json.find(key);
  if (found == json.end()) return fallback;
  if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->template get<bool>() : fallback;
  } else if constexpr (std::is_integral_v<T>) {
    if (found->is_number_unsigned()) {
      const auto value = found->template get<std::uint64_t>();
      return std::in_range<T>(value) ? static_cast<T>(value) : fallback;
    }
    if (!found->is_number_integer()) return fallback;
    const auto value = found->template get<std::int64_t>();
    return std::in_range<T>(value) ? static_cast<T>(value) : fallback;
  } else {
    return found->is_string() ? found->template get<std::string>() : fallback;
  }
}

inline nlohmann::json ErrorJson(const Status& status) {
  return {{"error", static_cast<int>(status.code())}, {"message", status.message()}};
}

/// The error that the peer sent, if it sent one.
inline Status ErrorOf(const nlohmann::json& json) {
  if (!json.contains("error")) return {};
  int code = Field<int>(json, "error", static_cast<int>(Code::kInternal));
  if (code <= 0 || code > static_cast<int>(Code::kDiverged))
    code = static_cast<int>(Code::kInternal);
  return Status(static_cast<Code>(code), Field<std::string>(json, "message", "unknown error"));
}

}  // namespace passel
