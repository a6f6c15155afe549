// settings_of.h - settings as a command line gives them, for tests of what is said of them. Whether
// the program's own parser takes a flag is for tests of the program.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "job/settings_table.h"
#include "job/train_settings.h"

namespace passel::job::testing {

template <typename T>
void SetTo(const std::string& text, T* target) {
  if constexpr (std::is_same_v<T, bool>) {
    *target = true;
  } else if constexpr (std::is_integral_v<T>) {
    *target = static_cast<T>(std::stoll(text));
  } else if constexpr (std::is_floating_point_v<T>) {
    *target = std::stod(text);
  } else {
    *target = text;
  }
}
template <typename T>
void SetTo(const std::string& text, std::optional<T>* target) {
  SetTo(text, &target->emplace());
}
inline void SetTo(const std::string& text, std::monostate /*of no field*/) {
  FAIL() << text << " is for a setting of another command";
}
inline void SetTo(const std::string& text, std::vector<std::string>* target) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    target->push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
}

/// Gives the settings of `view`, of which `job` are a part, what a flag, --name=value or --name,
/// says.
inline void GiveTo(const SettingsView& view, const std::string& flag, JobSettings* job) {
  const std::size_t equals = flag.find('=');
  const std::string name = flag.substr(0, equals);
  const std::string text = equals == std::string::npos ? "" : flag.substr(equals + 1);
  SettingValue value;
  for (const SettingRow& row : SettingsTable()) {
    if (row.name == name.substr(2) && value.index() == 0) value = row.value(view);
  }
  std::visit([&](auto field) { SetTo(text, field); }, value);
  job->typed.Keep(name, text);
}

inline void Give(const std::vector<std::string>& flags, TrainSettings* settings) {
  for (const std::string& flag : flags) {
    GiveTo(ViewOf(*settings), flag, &settings->job);
    const std::string name = flag.substr(0, flag.find('='));
    if (name == "--workers") settings->workers_given = true;
    if (name == "--num_gpus") settings->devices.num_gpus_given = true;
  }
}

}  // namespace passel::job::testing
