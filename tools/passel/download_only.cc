#include "tools/passel/download_only.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "data/locate.h"
#include "job/exit_code.h"
#include "job/shared_data.h"

namespace passel {

Status DownloadOnly(const job::SourceSettings& source) {
  PASSEL_ASSIGN_OR_RETURN(LocateOptions where, job::MakeLocateOptions(source));
  if (source.fake_data) {
    return InvalidArgument(
        "--download_only fetches data, and --fake_data needs none: omit one of them");
  }
  where.download.on_line = [](const std::string& line) { LogInfo("{}", line); };
  PASSEL_ASSIGN_OR_RETURN(const DataLocation location, EnsureData(where));
  LogInfo("{}", location.why);
  // Headers say little: only who has read it through knows that it is there.
  PASSEL_RETURN_IF_ERROR(job::SharedData::Load(location.dir, {}).status());
  fmt::print("the data is in {}\n", location.dir);
  std::fflush(stdout);
  return {};
}

int DownloadOnlyCommand(const job::SourceSettings& source) {
  const Status status = DownloadOnly(source);
  if (!status.ok()) LogError("{}", status.message());
  // Nothing that was lost comes back by starting this again: it is the network or the server.
  const int code = job::ExitCodeFor(status);
  return code == job::kExitRestartMe ? job::kExitFailed : code;
}

}  // namespace passel
