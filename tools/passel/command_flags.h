// command_flags.h - the options of a subcommand as src/cluster/resolve.h wants them, and back.
//
// The values of the file of --config are put into the options that were not typed, by the same
// conversions, so that a setting means the same wherever it stands.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/resolve.h"

namespace CLI {
class App;
}

namespace passel {

/// All options that a user sees, without --help. Those named in `not_in_file` and positional ones
/// cannot be set by a file. REQUIRES: the command line has been parsed.
std::vector<Flag> CollectFlags(const CLI::App& command,
                               const std::vector<std::string>& not_in_file = {
                                   "config", "print_config", "print_placement"});

/// The file `path` of --config, whose text is `text`, for `command`. Errors: as ParseConfigFile().
Result<ConfigFile> ParseCommandFile(const std::string& path, const std::string& text,
                                    const CLI::App& command);

/// Gives the options of `command` the values that `config` has from the file.
/// Errors: kInvalidArgument, naming the place in the file.
Status ApplyFileSettings(const ResolvedConfig& config, CLI::App& command);

/// For commands that make their own cluster: reads the file `path` (nothing is done for "") into
/// the options that were not typed. Errors: also kInvalidArgument for a file that names a cluster
/// or a task; those of ReadConfigFile().
Status ApplyConfigFile(const std::string& path, CLI::App& command);

}  // namespace passel
