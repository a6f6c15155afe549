// download_only.h - getting the data and nothing else: `passel data download`, and --download_only
// of the commands that train.

#pragma once

#include <string>

#include "base/status.h"
#include "job/data_settings.h"

namespace passel {

/// Makes sure that real data is there (EnsureData() of data/locate.h) and prints one line with its
/// place. Errors: those of EnsureData().
Status DownloadOnly(const job::SourceSettings& source);
/// The same, with the error logged; returns the exit code.
int DownloadOnlyCommand(const job::SourceSettings& source);

}  // namespace passel
