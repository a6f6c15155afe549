// settings.h - what a program says of its job, as the settings of `passel task`.

#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "job/job_config.h"
#include "job/task.h"

namespace passel::capi {

struct Settings {
  job::Task task;  // prepared, if not alone
  job::JobConfig config;
  bool alone = true;
};

/// Out of "NAME=VALUE" and the environment, checked as `passel task` checks them; the log is as
/// they say. Errors: kInvalidArgument; those of job::PrepareTask() and job::StartLog().
Result<Settings> ReadSettings(std::span<const std::string> settings);

}  // namespace passel::capi
