// json_file.h - results as JSON in a file, or on standard output.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace passel {

/// WriteResult() of the indented text of `json`.
Status WriteJsonFile(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace passel
