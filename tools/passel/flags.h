// flags.h - the flags of the commands, each group of which fills in settings of src/job.
//
// What they fill in must outlive the parsing and stay where it is until then.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/data_settings.h"
#include "job/device_settings.h"
#include "job/flag_checks.h"
#include "job/job_settings.h"
#include "job/launch_settings.h"
#include "job/parameters.h"
#include "job/task_settings.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace passel {

void AddJobFlags(CLI::App& app, JobFlags* flags);
void AddLaunchFlags(CLI::App& command, LaunchFlags* flags);
void AddTaskFlags(CLI::App& command, TaskFlags* flags);
/// Those that every command has: all but device_filters.
void AddDeviceFlags(CLI::App& command, DeviceFlags* flags);
/// --params, --job and --wait.
void AddParameterFlags(CLI::App& app, ParameterFlags* flags);

/// --data_dir, --download_url and --fake_data.
void AddSourceFlags(CLI::App& app, SourceFlags* flags);
/// --data_dir and --download_url.
void AddLocationFlags(CLI::App& app, SourceFlags* flags, const std::string& help);
/// --csv_train_limit and --csv_test_limit.
void AddCsvLimitFlags(CLI::App& app, std::int64_t* train, std::int64_t* test);
/// The same where not to give them is not the same as 0.
void AddCsvLimitFlags(CLI::App& app, std::optional<std::int64_t>* train,
                      std::optional<std::int64_t>* test);
/// Those of AddSourceFlags(), and the limits of CSV files.
void AddDataFlags(CLI::App& app, DataFlags* flags);

/// Keeps in `typed` what is given to `option`, on the command line or by a file.
void KeepTyped(CLI::Option* option, TypedNumbers* typed);

}  // namespace passel
