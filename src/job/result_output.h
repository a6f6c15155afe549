// result_output.h - where a result goes as text: a file, or "-", standard output with nothing else
// on it.
//
// Threads  One thread at a time, and before others print.

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace passel::job {

/// Whether a result can go to `path`, asked before anything is computed: as CheckOutputPath(). For
/// "-" whatever is printed to standard output goes to standard error from here on.
Status PrepareResult(const char* flag, const std::string& path);

/// Replaces the file `path` by `text`, or prints it.
/// REQUIRES: PrepareResult() was called for this path. Errors: those of WriteFileAtomically();
/// kInternal when it cannot be printed, or nobody reads it.
Status WriteResult(const std::string& path, std::string_view text);

}  // namespace passel::job
