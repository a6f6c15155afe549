// json_internal.h - what is JSON here. For .cc files only: it is a heavy header.

#pragma once

#include <nlohmann/json.hpp>

#include "shm/arena.h"

namespace passel::shm {

/// What an arena tells of its job (shm/job_status.h), with the last events: an object.
nlohmann::json DescribeJob(const Arena& arena, const WorkerNames& names);

}  // namespace passel::shm
