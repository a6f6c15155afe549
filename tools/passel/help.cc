#include "tools/passel/help.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "job/settings_table.h"

namespace passel {

namespace {

constexpr int kUsualWidth = 80;
constexpr int kLeastWidth = 40;
// Names that are longer stand on a line of their own.
constexpr std::size_t kColumn = 26;

// `text` in lines that begin at `column`, where the first one stands already.
std::string Wrapped(std::string_view text, std::size_t column, std::size_t width) {
  std::string lines;
  std::size_t at = column;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (at > column && at + 1 + word.size() > width) {
      lines += fmt::format("\n{:{}}", "", column);
      at = column;
    } else if (at > column) {
      lines += ' ';
      ++at;
    }
    lines += word;
    at += word.size();
  }
  return lines + "\n";
}

// "  --ps INT    Number of ps tasks"
std::string Entry(const std::string& name, const std::string& help, int width) {
  std::string entry = fmt::format("  {}", name);
  if (entry.size() + 2 > kColumn) entry += "\n";
  const std::size_t at = entry.back() == '\n' ? 0 : entry.size();
  return entry + std::string(kColumn - at, ' ') +
         Wrapped(help, kColumn, static_cast<std::size_t>(width));
}

// Without its full stop. One begins with a capital letter: "host:port,... of all" is no end.
std::string FirstSentence(const std::string& help) {
  for (std::size_t at = 0; (at = help.find(". ", at)) != std::string::npos; ++at) {
    if (at + 2 < help.size() && std::isupper(static_cast<unsigned char>(help[at + 2])) != 0) {
      return help.substr(0, at);
    }
  }
  return help;
}

// In the short help the first sentence.
std::string FlagEntry(const FlagText& flag, bool whole, int width) {
  std::string name = fmt::format("{}{}", flag.is_argument ? "" : "--", flag.name);
  if (flag.negatable) name = fmt::format("--[no]{}", flag.name);
  for (const std::string& other : flag.also) name += fmt::format(", --{}", other);
  if (!flag.value.empty()) name += fmt::format(" {}", flag.value);
  const bool on = flag.value.empty() && flag.shown == "true";
  const bool shows = on || (!flag.value.empty() && !flag.shown.empty());
  const std::string help = whole ? flag.help : FirstSentence(flag.help);
  return Entry(name, help + (shows ? fmt::format(" [{}]", flag.shown) : ""), width);
}

bool MattersMost(const FlagText& flag) {
  const job::SettingRow* const row = job::FindSetting(flag.name);
  return flag.is_argument || (row != nullptr && row->traits.first);
}

}  // namespace

const CommandText* CommandText::Find(const std::string& word) const {
  const auto found = std::find_if(commands.begin(), commands.end(), [&](const CommandText& c) {
    return c.name == name + " " + word;
  });
  return found == commands.end() ? nullptr : &*found;
}

int TerminalWidth() {
  int width = 0;
  winsize size{};
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr) {
    width = std::atoi(columns);
  } else if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    width = size.ws_col;
  }
  return width > 0 ? std::max(width, kLeastWidth) : kUsualWidth;
}

std::string HelpPage(const CommandText& command, bool all, int width) {
  std::string usage = fmt::format("Usage: {}", command.name);
  for (const FlagText& flag : command.flags) {
    if (!flag.is_argument) continue;
    usage += flag.optional ? fmt::format(" [{}]", flag.name) : fmt::format(" {}", flag.name);
  }
  usage += command.commands.empty() ? " [FLAGS]" : " COMMAND";
  if (command.name == "passel run") usage += " -- PROGRAM [ARGUMENTS]";  // see main.cc
  std::string page = Wrapped(command.about, 0, static_cast<std::size_t>(width));
  page += fmt::format("\n{}\n", usage);
  const auto few = std::count_if(command.flags.begin(), command.flags.end(), MattersMost);
  const bool shortened = !all && few > 5;
  std::vector<std::string> groups;
  for (const FlagText& flag : command.flags) {
    if (std::find(groups.begin(), groups.end(), flag.group) == groups.end()) {
      groups.push_back(flag.group);
    }
  }
  if (shortened) page += "\n";
  for (const std::string& group : groups) {
    if (!shortened) page += fmt::format("\n{}{}", group, group.empty() ? "" : ":\n");
    for (const FlagText& flag : command.flags) {
      if (flag.group != group || (shortened && !MattersMost(flag))) continue;
      page += FlagEntry(flag, !shortened, width);
    }
  }
  if (!command.commands.empty()) page += "\nCommands:\n";
  for (const CommandText& sub : command.commands) {
    page += Entry(sub.name.substr(command.name.size() + 1), sub.about, width);
  }
  if (!command.examples.empty()) page += fmt::format("\nExamples:\n{}\n", command.examples);
  if (shortened) {
    page += fmt::format("\n{} --help all  lists all {} flags, by group.\n", command.name,
                        command.flags.size());
  } else if (!all && !command.commands.empty()) {
    page += fmt::format("\n{} COMMAND --help  says more of one.\n", command.name);
  }
  if (all) {
    for (const CommandText& sub : command.commands)
      page += fmt::format("\n\n{}", HelpPage(sub, all, width));
  }
  return page;
}

}  // namespace passel
