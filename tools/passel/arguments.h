// arguments.h - the command line before and after the parser: what it takes silently is refused,
// and what it refuses is explained.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace passel {

/// The arguments as CLI::App::parse() wants them: the last one first, without the program's name.
/// "--name=" is an empty value, not one that comes next; "--help all" is one flag; and a command of
/// one command alone is found without that: "status" is "ctl status".
std::vector<std::string> ReversedArguments(const CLI::App& app, int argc, char** argv);

/// The innermost command that was named.
const CLI::App& UsedCommand(const CLI::App& app);

/// "passel", "passel train", "passel data check": the innermost command that was named.
std::string CommandName(const CLI::App& app);

/// After parsing. Errors: kInvalidArgument for a flag whose value is empty, as a variable that is
/// not set leaves it in a script (those that name a task may be: they count as missing), and for
/// --sync_replicas beside a --mode that is not synchronous.
Status CheckArguments(const CLI::App& app);

/// One sentence, for a person, that names the fix: the nearest known flag or command.
std::string Explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace passel
