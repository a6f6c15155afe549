// mode_settings.h - the settings of the mode: the first one, its numbers, when it changes.

#pragma once

#include "base/status.h"
#include "job/job_config.h"
#include "job/job_settings.h"

namespace passel::job {

/// Fills in the mode, its numbers, its schedule and the workers that are to be slow.
/// Errors: kInvalidArgument, also for two flags that name the first mode differently.
Status CheckModeSettings(const JobSettings& flags, JobConfig* config);

}  // namespace passel::job
