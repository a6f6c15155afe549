// help.h - what the program says of itself: help on a terminal, and the manual in several forms.

#pragma once

#include <string>
#include <vector>

namespace passel {

/// A flag, or an argument without a name, as help shows it.
struct FlagText {
  std::string name;               ///< without dashes; of an argument its only one
  std::vector<std::string> also;  ///< other names, without dashes
  std::string value;              ///< "INT"; "" for a switch
  std::string shown;              ///< the default; "" for none
  std::string help;
  std::string group;  ///< "" for help itself
  bool is_argument = false;
  bool optional = true;    ///< of an argument: it may be omitted
  bool negatable = false;  ///< --noNAME is there too
};

struct CommandText {
  std::string name;  ///< "passel train"
  std::string about;
  std::string examples;  ///< lines
  std::vector<FlagText> flags;
  std::vector<CommandText> commands;

  /// The command of that name, or null.
  const CommandText* Find(const std::string& word) const;
};

/// Columns of the terminal: COLUMNS, else what standard output says, else 80.
int TerminalWidth();

/// Help of a command. Of one with many flags those that matter, or `all` by group; of one with
/// commands, with `all`, those too.
std::string HelpPage(const CommandText& command, bool all, int width);

/// docs/settings.md: every setting of `train`, `launch` and `task`.
std::string SettingsPage();
/// passel(1), for man.
std::string ManPage(const CommandText& program);
/// What bash is to source.
std::string BashCompletion(const CommandText& program);

}  // namespace passel
