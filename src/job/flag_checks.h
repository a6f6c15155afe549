// flag_checks.h - what the checks of flags share: ranges, choices, and numbers as they were typed.
//
// Errors     kInvalidArgument: one sentence with the flag, its limits, the value as it was typed
//            and a value that would do.

#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace passel::job {

/// The texts of numbers as the user wrote them, so that an error shows 100000000000000000000 and
/// not 1e+20.
class TypedNumbers {
 public:
  /// The text of `flag` (with dashes).
  void Keep(const std::string& flag, const std::string& text) { texts_[flag] = text; }
  /// The text of the flag (with dashes), or the shortest one for `value` if nobody gave it.
  std::string Show(std::string_view flag, double value) const;

 private:
  std::map<std::string, std::string, std::less<>> texts_;
};

Status CheckRange(std::string_view flag, std::int64_t value, std::int64_t low, std::int64_t high);
/// `unit` follows the limits: " s".
Status CheckRange(std::string_view flag, double value, double low, double high,
                  const TypedNumbers& typed, std::string_view unit = "");
/// For shares: above 0 and up to 1.
Status CheckShare(std::string_view flag, double value, const TypedNumbers& typed);

/// The choice of that name.
template <typename T>
Result<T> Choose(const char* flag, const std::string& value,
                 std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, choice] : choices) {
    if (value == name) return choice;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return InvalidArgument(fmt::format("{} {} is not known: use one of {}", flag, value, names));
}

}  // namespace passel::job
