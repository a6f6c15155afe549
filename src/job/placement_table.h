// placement_table.h - shows on which ps each variable of a model is.

#pragma once

#include <string>

#include "base/status.h"
#include "job/job_config.h"

namespace passel::job {

/// The table for `ps` ps tasks (0: none, one process trains alone). The sizes that come from
/// the data are those of --data_dir, or 784 pixels and 10 classes if that was not given.
/// Errors: those of reading the data and of the placement.
Result<std::string> PlacementTable(const SourceSettings& source, JobConfig config, int ps);

}  // namespace passel::job
