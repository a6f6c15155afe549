// train_command.h - what `passel task` has in common with `passel train` and `passel launch`.

#pragma once

#include "job/job_config.h"
#include "job/train_settings.h"

namespace passel {

/// Checks the settings, trains, reports. Returns the exit code.
int Train(TrainFlags& flags);

/// Prints PlacementTable(), or what is wrong. Returns the exit code.
int PrintPlacement(const SourceFlags& source, const JobConfig& config, int ps);

}  // namespace passel
