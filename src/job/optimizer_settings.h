// optimizer_settings.h - the settings of the optimizer, checked against the one that was chosen.

#pragma once

#include "base/status.h"
#include "job/job_settings.h"
#include "optim/optimizer.h"

namespace passel::job {

/// Errors: kInvalidArgument: an optimizer that is none, a value out of range, a flag that means
/// nothing to the optimizer.
Result<OptimizerConfig> CheckOptimizer(const JobSettings& flags);

}  // namespace passel::job
