// run_settings.h - what `passel run` says to the programs that it starts.

#pragma once

#include <span>
#include <string>
#include <vector>

namespace passel::capi {

struct RunSettings {
  std::vector<std::string> all;  ///< "NAME=VALUE": what was given, then what the command adds
  bool supervised = false;       ///< the ps and the other workers are all of the command
};

/// Adds to what the program gives the lines of the environment variable PASSEL_SETTINGS whose names
/// it does not give. A program that names a cluster of its own is told of none.
RunSettings ReadRunSettings(std::span<const std::string> given);

}  // namespace passel::capi
