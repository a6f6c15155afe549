#include "tools/passel/json_file.h"

#include <nlohmann/json.hpp>

#include "job/result_output.h"

namespace passel {

Status WriteJsonFile(const std::string& path, const nlohmann::ordered_json& json) {
  const std::string text =
      json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  return job::WriteResult(path, text);
}

}  // namespace passel
