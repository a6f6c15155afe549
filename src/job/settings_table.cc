#include "job/settings_table.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "job/flag_checks.h"

namespace passel::job {
namespace {

std::vector<SettingRow> MakeSettingsTable() {
  std::vector<SettingGroup> groups = {JobGroup(), TaskGroup(), DeviceGroup(), PresetGroup()};
  for (SettingGroup& group : DataAndModelGroups()) groups.push_back(std::move(group));
  groups.push_back(OptimizerGroup());
  for (SettingGroup& group : TrainingGroups()) groups.push_back(std::move(group));
  groups.push_back(CheckpointGroup());
  groups.push_back(ChildGroup());
  std::vector<SettingRow> rows;
  for (SettingGroup& group : groups) {
    for (SettingRow& row : group.rows) {
      row.group = group.name;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

template <typename T>
concept Arithmetic = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

std::string FlagText(bool value) { return value ? "true" : "false"; }
std::string FlagText(const std::string& value) { return value; }
std::string FlagText(const std::vector<std::string>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}
// The shortest one that reads back the same.
template <Arithmetic T>
std::string FlagText(T value) {
  return fmt::format("{}", value);
}
template <typename T>
std::string FlagText(const std::optional<T>& value) {
  return value ? FlagText(*value) : "";
}

// All there is, each with its default.
struct Defaults {
  JobSettings job;
  TaskSettings task;
  SettingsView view = ViewOf(job, &task.devices, &task);
};

// Null for one that is not given.
template <Arithmetic T>
const T* NumberIn(const T* field) {
  return field;
}
template <Arithmetic T>
const T* NumberIn(const std::optional<T>* field) {
  return *field ? &**field : nullptr;
}

template <Arithmetic T>
Status CheckNumber(const std::string& flag, const SettingRange& range, T value,
                   const TypedNumbers& typed) {
  if constexpr (std::is_floating_point_v<T>) {
    return CheckRange(flag, value, range.least, range.most, typed, range.unit);
  } else {
    return CheckRange(flag, static_cast<std::int64_t>(value),
                      static_cast<std::int64_t>(range.least),
                      static_cast<std::int64_t>(range.most));
  }
}

Status CheckRow(const SettingRow& row, const SettingValue& value, const TypedNumbers& typed) {
  return std::visit(
      [&](auto field) -> Status {
        if constexpr (requires { NumberIn(field); }) {
          const auto* const number = NumberIn(field);
          if (number == nullptr) return {};
          return CheckNumber("--" + row.name, *row.traits.range, *number, typed);
        } else {
          return {};
        }
      },
      value);
}

}  // namespace

SettingsView ViewOf(TrainSettings& s) { return {&s.job, &s.devices, &s.launch, &s, nullptr}; }

SettingsView ViewOf(JobSettings& job, DeviceSettings* devices, TaskSettings* task) {
  return {&job, devices, nullptr, nullptr, task};
}

const std::vector<SettingRow>& SettingsTable() {
  static const std::vector<SettingRow> table = MakeSettingsTable();
  return table;
}

const SettingRow* FindSetting(std::string_view name) {
  const auto& table = SettingsTable();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const SettingRow& row) { return row.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::string TextOf(const SettingValue& value) {
  return std::visit(
      [](const auto& field) -> std::string {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(field)>>) {
          return FlagText(*field);
        } else {
          return "";
        }
      },
      value);
}

std::vector<std::string> ToArguments(const SettingsView& view, bool saves) {
  Defaults defaults;
  std::vector<std::string> arguments;
  for (const SettingRow& row : SettingsTable()) {
    const SettingValue value = row.value(view);
    const std::string text = TextOf(value);
    const bool wanted = row.traits.to_child || (saves && row.group == kCheckpointGroup);
    if (!wanted || value.index() == 0 || text == TextOf(row.value(defaults.view))) continue;
    const bool* const* const on = std::get_if<bool*>(&value);
    arguments.push_back(on == nullptr ? fmt::format("--{}={}", row.name, text)
                                      : fmt::format("--{}{}", **on ? "" : "no", row.name));
  }
  return arguments;
}

Status CheckRanges(const SettingsView& view, const TypedNumbers& typed) {
  for (const SettingRow& row : SettingsTable()) {
    if (row.traits.range) PASSEL_RETURN_IF_ERROR(CheckRow(row, row.value(view), typed));
  }
  return {};
}

}  // namespace passel::job
