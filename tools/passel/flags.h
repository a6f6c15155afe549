// flags.h - the flags of the commands, each group of which fills in settings of src/job.
//
// What they fill in must outlive the parsing and stay where it is until then.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "job/data_settings.h"
#include "job/parameters.h"
#include "job/settings_table.h"
#include "tools/passel/command_line.h"

namespace passel {

/// A flag for the setting of that row, whose value is `value`, wherever that is.
void AddSetting(Command& command, const job::SettingRow& row, const job::SettingValue& value);
/// A flag for each setting of the view that `command` has.
void AddSettings(Command& command, const job::SettingsView& view);
/// A flag for each setting of the view that `wanted` picks.
void AddSettings(Command& command, const job::SettingsView& view,
                 const std::function<bool(const job::SettingRow&)>& wanted);

/// --params, --job and --wait.
void AddParameterFlags(Command& app, job::ParameterSettings* flags);

/// --data_dir, --download_url and --fake_data.
void AddSourceFlags(Command& app, job::SourceSettings* flags);
/// --data_dir and --download_url.
void AddLocationFlags(Command& app, job::SourceSettings* flags, const char* help);
/// --csv_train_limit and --csv_test_limit, which may be optional.
void AddCsvLimitFlags(Command& app, const job::SettingValue& train, const job::SettingValue& test);

}  // namespace passel
