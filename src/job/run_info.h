// run_info.h - what ran, where and since when: what a report needs to be understood next year.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "job/train_settings.h"

namespace passel::job {

/// "0.1.0"
std::string_view Version();

struct RunInfo {
  std::string version;
  std::vector<std::string> command;  ///< argv
  /// Each setting that tasks share and its value as a flag takes it, defaults included; without
  /// those that have none.
  std::vector<std::pair<std::string, std::string>> settings;
  /// Those settings of the job, also of what its tasks are not told, that are not the default.
  std::vector<std::pair<std::string, std::string>> changed;
  std::string host;       ///< its name
  std::string processor;  ///< "Intel(R) Xeon(R) ..."; "" where the kernel does not say
  int cores = 0;          ///< that this process may use
  std::string started;    ///< UTC, "2026-11-22T14:37:29Z"
};

/// Describes this process; `started` is now. Neither the network nor a clock is waited for.
RunInfo DescribeRun(TrainSettings settings);

}  // namespace passel::job
