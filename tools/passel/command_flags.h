// command_flags.h - the options of a subcommand as src/cluster/resolve.h wants them, and back.
//
// The values of the file of --config are put into the options that were not typed, by the same
// conversions, so that a setting means the same wherever it stands.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/resolve.h"
#include "tools/passel/command_line.h"

namespace passel {

/// Command::Flags(): a file may set all but those that ask for it or only print.
/// REQUIRES: the command line has been parsed.
std::vector<Flag> CollectFlags(const Command& command);

/// The file `path` of --config, whose text is `text`, for `command`. Errors: as ParseConfigFile().
Result<ConfigFile> ParseCommandFile(const std::string& path, const std::string& text,
                                    const Command& command);

/// Gives the options of `command` the values that `config` has from the file.
/// Errors: kInvalidArgument, naming the place in the file.
Status ApplyFileSettings(const ResolvedConfig& config, Command& command);

/// For commands that make their own cluster: reads the file `path` (nothing is done for "") into
/// the options that were not typed. Errors: also kInvalidArgument for a file that names a cluster
/// or a task; those of ReadConfigFile().
Status ApplyConfigFile(const std::string& path, Command& command);

}  // namespace passel
