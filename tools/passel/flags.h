// flags.h - the flags of the commands, each group of which fills in settings of src/job.
//
// What they fill in must outlive the parsing and stay where it is until then.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/data_settings.h"
#include "job/device_settings.h"
#include "job/job_settings.h"
#include "job/launch_settings.h"
#include "job/parameters.h"
#include "job/task_settings.h"
#include "tools/passel/command_line.h"

namespace passel {

void AddJobFlags(Command& app, job::JobSettings* flags);
void AddLaunchFlags(Command& command, job::LaunchSettings* flags);
void AddTaskFlags(Command& command, job::TaskSettings* flags);
/// Those that every command has: all but device_filters.
void AddDeviceFlags(Command& command, job::DeviceSettings* flags);
/// --params, --job and --wait.
void AddParameterFlags(Command& app, job::ParameterSettings* flags);

/// --data_dir, --download_url and --fake_data.
void AddSourceFlags(Command& app, job::SourceSettings* flags);
/// --data_dir and --download_url.
void AddLocationFlags(Command& app, job::SourceSettings* flags, const std::string& help);
/// --csv_train_limit and --csv_test_limit.
void AddCsvLimitFlags(Command& app, std::int64_t* train, std::int64_t* test);
/// The same where not to give them is not the same as 0.
void AddCsvLimitFlags(Command& app, std::optional<std::int64_t>* train,
                      std::optional<std::int64_t>* test);
/// Those of AddSourceFlags(), and the limits of CSV files.
void AddDataFlags(Command& app, job::DataSettings* flags);

}  // namespace passel
