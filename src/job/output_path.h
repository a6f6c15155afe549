// output_path.h - whether a result can be written where the user wants it, asked before hours of
// training.

#pragma once

#include <string>

#include "base/status.h"

namespace passel::job {

/// OK if a file can be created beside `path` (and then take its name). Leaves nothing behind.
/// Errors: kInvalidArgument, naming `flag`, the path, what is wrong and the fix.
Status CheckOutputPath(const char* flag, const std::string& path);

/// Errors: kInvalidArgument if both are given and are the same file.
Status CheckDifferentFiles(const char* flag, const std::string& path, const char* other_flag,
                           const std::string& other);

/// Errors: kInvalidArgument if `path` is one of the names that `folder`, with checkpoints, has for
/// itself. Either may be "".
Status CheckNoCheckpointFile(const char* flag, const std::string& path, const std::string& folder);

}  // namespace passel::job
