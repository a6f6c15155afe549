// placement_settings.h - the settings that say which ps has which variable.

#pragma once

#include "base/status.h"
#include "job/job_settings.h"
#include "train/model_plan.h"

namespace passel::job {

/// Errors: kInvalidArgument for what cannot be understood. Whether pinned variables and their tasks
/// exist is for CheckPins() (train/model_plan.h).
Result<PlacementOptions> CheckPlacementSettings(const JobSettings& flags);

}  // namespace passel::job
