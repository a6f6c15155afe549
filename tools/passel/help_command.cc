// `passel help`: help of a command, and the manual.

#include <fmt/core.h>

#include <memory>
#include <string>
#include <vector>

#include "cluster/text.h"
#include "job/exit_code.h"
#include "tools/passel/commands.h"

namespace passel {
namespace {

struct HelpFlags {
  std::vector<std::string> words;
  std::string format = "text";
};

Result<std::string> Help(const HelpFlags& flags, const CommandText& program) {
  if (flags.format == "markdown") return SettingsPage();
  if (flags.format == "man") return ManPage(program);
  if (flags.format == "bash") return BashCompletion(program);
  if (flags.format != "text") {
    return InvalidArgument(fmt::format(
        "--format {} is not known: use one of text, markdown, man, bash", Quoted(flags.format)));
  }
  std::vector<std::string> words = flags.words;
  const bool all = !words.empty() && words.back() == "all";
  if (all) words.pop_back();
  const CommandText* command = &program;
  for (const std::string& word : words) {
    const CommandText* const found = command->Find(word);
    if (found == nullptr) {
      return InvalidArgument(fmt::format("{} has no command {}: see {} --help", command->name,
                                         Quoted(word), command->name));
    }
    command = found;
  }
  return HelpPage(*command, all, TerminalWidth());
}

}  // namespace

void AddHelpCommand(Command& program) {
  auto flags = std::make_shared<HelpFlags>();
  Command command = program.AddCommand("help", "Help of a command, and the manual");
  command.Add("command", &flags->words, "A command, e.g. train; all: every flag of it");
  command
      .Add("--format", &flags->format,
           "text; markdown: a page of all settings; man: passel(1); bash: its completion")
      .ShowDefault();
  command.OnRun([flags, program] {
    const Result<std::string> help = Help(*flags, program.Text());
    if (!help.ok()) return FinishCommand(help.status());
    fmt::print("{}", *help);
    return job::kExitDone;
  });
}

}  // namespace passel
