// devices.h - what the device flags of a task ask for, against what this build has: CPUs.

#pragma once

#include "base/status.h"
#include "store/store_plan.h"
#include "tools/passel/task.h"

namespace passel {

/// Checks the flags and says, in one line each, what of them has no effect.
/// Errors: kInvalidArgument: a value that is none; a GPU without soft placement; filters that leave
/// out a ps.
Status CheckDevices(const Task& task);

/// --log_device_placement: one line per variable, and one for the computation.
void LogDevicePlacement(const Task& task, const StorePlan& plan);

}  // namespace passel
