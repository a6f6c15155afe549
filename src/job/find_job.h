// find_job.h - the running jobs of this user on this host.

#pragma once

#include <map>
#include <string>

#include "base/status.h"

namespace passel::job {

/// Jobs by name, with the number of their ps. Errors: those of FindEndpoints().
Result<std::map<std::string, int>> FindJobs();

/// The one that was named, or, for an empty name, the only one. Errors: kNotFound; kInvalidArgument
/// when several are running.
Result<std::string> ChooseJob(const std::string& named);

}  // namespace passel::job
