// mode_flags.h - the flags of the mode: the first one, its numbers, when it changes.

#pragma once

#include "base/status.h"
#include "tools/passel/job_config.h"
#include "tools/passel/job_flags.h"

namespace passel {

/// Fills in the mode, its numbers, its schedule and the workers that are to be slow.
/// Errors: kInvalidArgument, also for two flags that name the first mode differently.
Status CheckModeFlags(const JobFlags& flags, JobConfig* config);

}  // namespace passel
