// train_command.h - what `passel task` has in common with `passel train` and `passel launch`.

#pragma once

#include <cstdint>

#include "job/job_config.h"
#include "job/train_settings.h"

namespace passel {

/// Checks the settings, trains, reports. `start_ns`: MonotonicNs() at the start of the program.
/// Returns the exit code.
int Train(job::TrainSettings& flags, std::int64_t start_ns);

/// Prints PlacementTable(), or what is wrong. Returns the exit code.
int PrintPlacement(const job::SourceSettings& source, const job::JobConfig& config, int ps);

}  // namespace passel
