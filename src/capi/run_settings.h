// run_settings.h - what `passel run` says to the programs that it starts.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace passel::capi {

struct RunSettings {
  std::vector<std::string> all;  ///< "NAME=VALUE": what was given, then what the command adds
  bool supervised = false;       ///< the ps and the other workers are all of the command
};

/// Adds to what the program gives the lines of the environment variable PASSEL_SETTINGS whose names
/// it does not give, and that do not hang on a mode or an optimizer that it replaces. A program
/// that names a task of a cluster of its own is told of none. Errors: kInvalidArgument if the
/// program names another job than that of the command.
Result<RunSettings> ReadRunSettings(std::span<const std::string> given);

}  // namespace passel::capi
