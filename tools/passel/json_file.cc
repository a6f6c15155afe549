#include "tools/passel/json_file.h"

#include "job/result_output.h"

namespace passel {

Status WriteJsonFile(const std::string& path, const Json& json) {
  return job::WriteResult(path, json.Write(2) + "\n");
}

}  // namespace passel
