// json_file.h - results as JSON in a file.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"

namespace passel {

/// Replaces `path` by the indented text of `json`. Errors: those of WriteFileAtomically().
Status WriteJsonFile(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace passel
