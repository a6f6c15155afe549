// settings_table.h - the settings of `train`, `launch` and `task`, each one once: its name, where
// its value is kept, what it may be and what it means.
//
// Whatever lists settings walks this table: the flags and their help, the arguments of a child,
// what a file may set, the checks of simple ranges, the manual. A new setting is a field, a row
// here and the code that uses it.
//
// Thread safety: constant data.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "base/status.h"
#include "job/device_settings.h"
#include "job/job_settings.h"
#include "job/launch_settings.h"
#include "job/task_settings.h"
#include "job/train_settings.h"

namespace passel::job {

/// The settings that somebody has. Null: none of that kind.
using SettingsView =
    std::tuple<JobSettings*, DeviceSettings*, LaunchSettings*, TrainSettings*, TaskSettings*>;

SettingsView ViewOf(TrainSettings& settings);
SettingsView ViewOf(JobSettings& job, DeviceSettings* devices = nullptr,
                    TaskSettings* task = nullptr);

/// Where the value of a setting is; nothing for one that the view does not have.
using SettingValue =
    std::variant<std::monostate, bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                 std::vector<std::string>*, std::optional<std::string>*, std::optional<int>*,
                 std::optional<std::int64_t>*, std::optional<double>*>;

struct SettingRange {
  double least = 0;
  double most = 0;
  const char* unit = "";  ///< as it follows the limits: " s"
};

/// What few settings have. Names of flags are without dashes.
struct SettingTraits {
  std::optional<SettingRange> range{};  ///< for CheckRange(); other checks are code
  const char* shown = nullptr;          ///< the default, where the field does not hold it
  const char* only = nullptr;           ///< the one command that has it
  const char* alias = nullptr;          ///< another name
  bool list = false;                    ///< a text that a file may write as a list
  bool in_file = true;                  ///< a file may set it
  bool to_child = true;                 ///< a task is given the value of its job
  bool first = false;                   ///< one of the few that the short help shows
  /// Another value trains another model: a job that goes on from a checkpoint names the change.
  bool mathematics = false;
};

inline const SettingTraits kList{.list = true};
inline const SettingTraits kNotInFile{.in_file = false};
inline const SettingTraits kNotToChild{.to_child = false};
inline SettingTraits Only(const char* command) { return {.only = command}; }
inline SettingTraits InShortHelp(SettingTraits others = {}) {
  others.first = true;
  return others;
}
inline SettingTraits Mathematics(SettingTraits others = {}) {
  others.mathematics = true;
  return others;
}
inline SettingTraits Within(double least, double most, const char* unit = "") {
  return {.range = SettingRange{least, most, unit}};
}

struct SettingRow {
  std::string name;  ///< without dashes
  std::function<SettingValue(const SettingsView&)> value;
  std::string help;
  SettingTraits traits{};
  std::string group{};  ///< "Data"; "": no help shows it
};

/// What a file says of one group.
struct SettingGroup {
  const char* name;
  std::vector<SettingRow> rows;
};

/// Finds the field behind a row: At<&JobSettings::source, &SourceSettings::data_dir>.
template <auto... kMembers>
struct At {
  template <typename Owner, typename Field>
  static Owner* OwnerOf(Field Owner::*);
  template <typename First, typename... More>
  static decltype(OwnerOf(First{})) FirstOwner(First, More...);

  SettingValue operator()(const SettingsView& view) const {
    auto* const owner = std::get<decltype(FirstOwner(kMembers...))>(view);
    if (owner == nullptr) return {};
    return &((*owner).*....*kMembers);
  }
};

/// All of them, in the order in which they are shown.
const std::vector<SettingRow>& SettingsTable();

/// The row of that name; null if there is none. Of two rows of different commands the first.
const SettingRow* FindSetting(std::string_view name);

/// As a flag takes it; "" for none. Lists are joined by commas.
std::string TextOf(const SettingValue& value);

/// Every setting that a child of the job is to have and that is not its default, as arguments:
/// "--seed=7", "--overlap", "--nocuda_graphs". `saves`: the child makes checkpoints, and has the
/// settings of these, too.
std::vector<std::string> ToArguments(const SettingsView& view, bool saves = false);
inline constexpr char kCheckpointGroup[] = "Checkpoints";

/// Errors: kInvalidArgument for the first value out of the range of its row, shown as in `typed`.
Status CheckRanges(const SettingsView& view, const TypedNumbers& typed);

// The groups, by file.
SettingGroup JobGroup();
SettingGroup TaskGroup();
SettingGroup ChildGroup();
SettingGroup DeviceGroup();
SettingGroup PresetGroup();
SettingGroup OptimizerGroup();
SettingGroup CheckpointGroup();
/// Data and model, which come before the optimizer's.
std::vector<SettingGroup> DataAndModelGroups();
/// All that come after them.
std::vector<SettingGroup> TrainingGroups();

}  // namespace passel::job
