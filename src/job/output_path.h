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

/// Errors: kInvalidArgument if `path` has the name of a part of a checkpoint, or one of those that
/// a folder with checkpoints has for itself, and is in such a folder, or in `folder`. Either may be
/// "".
Status CheckNoCheckpointFile(const char* flag, const std::string& path,
                             const std::string& folder = "");

}  // namespace passel::job
