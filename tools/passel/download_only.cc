#include "tools/passel/download_only.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "data/locate.h"

namespace passel {

Status DownloadOnly(const std::string& data_dir) {
  LocateOptions where;
  where.data_dir = data_dir;
  where.download.on_line = [](const std::string& line) { LogInfo("{}", line); };
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, EnsureData(where));
  LogInfo("{}", location.why);
  fmt::print("the data is in {}\n", location.dir);
  std::fflush(stdout);
  return {};
}

}  // namespace passel
