// json_file.h - results as JSON in a file, or on standard output.

#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"

namespace passel {

/// WriteResult() of the indented text of `json`.
Status WriteJsonFile(const std::string& path, const Json& json);

}  // namespace passel
