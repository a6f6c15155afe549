// saved_values.h - the trained variables of a job in a file, with what is known of them.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "compute/row_parts.h"
#include "job/job_config.h"

namespace passel::job {

/// SaveModel() of the values of a job after its update `global_step`. The metadata say how they
/// were trained: that step, the first mode, the optimizer, what was held back of the data, and the
/// accuracy on the test images if that is known. REQUIRES: FitToData(&config) was called.
/// Errors: those of SaveModel().
Status SaveValues(const std::string& path, const JobConfig& config, ParameterParts values,
                  std::int64_t global_step, std::optional<double> test_accuracy = std::nullopt);

}  // namespace passel::job
