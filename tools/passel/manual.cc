// The manual in the forms of help.h that are not for a terminal.

#include <fmt/core.h>

#include <string_view>
#include <type_traits>

#include "job/settings_table.h"
#include "tools/passel/help.h"

namespace passel {

namespace {

template <typename T>
const char* KindOf(const T* /*field*/) {
  return std::is_same_v<T, bool>          ? "switch"
         : std::is_integral_v<T>          ? "integer"
         : std::is_floating_point_v<T>    ? "number"
         : std::is_same_v<T, std::string> ? "text"
                                          : "list";
}
template <typename T>
const char* KindOf(const std::optional<T>* /*field*/) {
  return KindOf(static_cast<const T*>(nullptr));
}
const char* KindOf(std::monostate /*of no field*/) { return ""; }

// What the table says of a setting, in words.
struct SettingWords {
  std::string kind;      // "integer"
  std::string value;     // the default
  std::string range;     // "0 to 1000"
  std::string commands;  // "train, launch"
};

SettingWords WordsOf(const job::SettingRow& row) {
  job::TrainSettings train;
  job::JobSettings job;
  job::TaskSettings task;
  const job::SettingValue of_train = row.value(job::ViewOf(train));
  const job::SettingValue of_task = row.value(job::ViewOf(job, &task.devices, &task));
  const job::SettingValue& value = of_train.index() == 0 ? of_task : of_train;
  SettingWords words;
  words.kind = std::visit([](auto field) { return KindOf(field); }, value);
  words.value = row.traits.shown != nullptr ? row.traits.shown : job::TextOf(value);
  if (row.traits.range) {
    const job::SettingRange& range = *row.traits.range;
    words.range = fmt::format("{} to {}{}", range.least, range.most, range.unit);
  }
  for (const auto& [command, has] :
       {std::pair("train", of_train.index() != 0),
        {"launch", of_train.index() != 0},
        {"run", row.traits.only != nullptr && row.traits.only == std::string_view("run")},
        {"task", of_task.index() != 0}}) {
    if (!has || (row.traits.only != nullptr && row.traits.only != std::string_view(command))) {
      continue;
    }
    words.commands += fmt::format("{}{}", words.commands.empty() ? "" : ", ", command);
  }
  return words;
}

std::string Replaced(const std::string& text, char from, std::string_view to) {
  std::string result;
  for (const char c : text) {
    if (c == from) {
      result += to;
    } else {
      result += c;
    }
  }
  return result;
}

// Escapes for man: a line that begins with a point is an order, a backslash is not itself.
std::string ForMan(std::string text) {
  text = Replaced(Replaced(text, '\\', "\\e"), '-', "\\-");
  return fmt::format("{}{}", text.starts_with('.') || text.starts_with('\'') ? "\\&" : "", text);
}

std::string ManEntry(const std::string& name, const std::string& value, const std::string& help) {
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", ForMan(name),
                     value.empty() ? "" : fmt::format(" \\fI{}\\fR", ForMan(value)), ForMan(help));
}

// Those of train, launch and task are told once, by group.
bool HasSettings(const CommandText& command) {
  return command.name == "passel train" || command.name == "passel launch" ||
         command.name == "passel run" || command.name == "passel task";
}

std::string ManCommand(const CommandText& command) {
  std::string text = fmt::format(".SS {}\n{}.\n", ForMan(command.name), ForMan(command.about));
  if (HasSettings(command)) text += "Its flags are below, under SETTINGS.\n";
  for (const FlagText& flag : command.flags) {
    if (HasSettings(command) && job::FindSetting(flag.name) != nullptr) continue;
    text += ManEntry((flag.is_argument ? "" : "--") + flag.name, flag.value, flag.help);
  }
  if (!command.examples.empty()) {
    text += fmt::format(".PP\nExamples:\n.nf\n{}\n.fi\n", ForMan(command.examples));
  }
  for (const CommandText& sub : command.commands) text += ManCommand(sub);
  return text;
}

// One line of `case`: what may follow this command.
std::string BashCases(const CommandText& command) {
  std::string words;
  for (const CommandText& sub : command.commands) {
    words += sub.name.substr(command.name.size() + 1) + " ";
  }
  for (const FlagText& flag : command.flags) {
    if (flag.is_argument) continue;
    words += fmt::format("--{}{} ", flag.name, flag.value.empty() ? "" : "=");
    if (flag.negatable) words += fmt::format("--no{} ", flag.name);
  }
  std::string text = fmt::format("    '{}') words='{}--help' ;;\n", command.name, words);
  for (const CommandText& sub : command.commands) text += BashCases(sub);
  return text;
}

// "'passel train'|'passel data'|'passel data check'"
std::string CommandPatterns(const CommandText& command) {
  std::string patterns;
  for (const CommandText& sub : command.commands) {
    patterns += fmt::format("{}'{}'", patterns.empty() ? "" : "|", sub.name);
    if (!sub.commands.empty()) patterns += fmt::format("|{}", CommandPatterns(sub));
  }
  return patterns;
}

}  // namespace

std::string SettingsPage() {
  std::string page =
      "# Settings\n\n"
      "Every setting of `passel train`, `launch` and `task`: a flag `--NAME` of the commands that "
      "are named, and,\nbut for `config` and the switches that only print, a name in the file of "
      "`--config` "
      "([configuration](configuration.md)).\nA switch `--NAME` is turned off by `--noNAME`. This "
      "page is printed by `passel help --format=markdown`.\n\n"
      "`passel run` takes the settings for which `run` is named. Of those of `train` and `task` it "
      "takes the ones\nthat mean something for a program with its own model: `passel run --help` "
      "lists them. Its default of `--max_restarts` is 3.\n";
  std::string group;
  for (const job::SettingRow& row : job::SettingsTable()) {
    if (row.group.empty()) continue;
    if (row.group != group) {
      group = row.group;
      page += fmt::format(
          "\n## {}\n\n| flag | kind | default | range | commands | meaning "
          "|\n|---|---|---|---|---|---|\n",
          group);
    }
    const SettingWords words = WordsOf(row);
    page += fmt::format("| `--{}` | {} | {} | {} | {} | {} |\n", row.name, words.kind,
                        words.value.empty() ? "" : fmt::format("`{}`", words.value), words.range,
                        words.commands, Replaced(Replaced(row.help, '|', "\\|"), '<', "&lt;"));
  }
  return page;
}

std::string ManPage(const CommandText& program) {
  std::string page = fmt::format(
      ".TH PASSEL 1\n.SH NAME\npassel \\- train with a parameter server at memory speed\n"
      ".SH SYNOPSIS\n.B passel\n.I COMMAND\n[\\fIFLAGS\\fR]\n.SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      ForMan(program.about));
  for (const CommandText& command : program.commands) page += ManCommand(command);
  page += ".SH SETTINGS\nThe flags of train, launch and task, by group.\n";
  std::string group;
  for (const job::SettingRow& row : job::SettingsTable()) {
    if (row.group.empty()) continue;
    if (row.group != group) page += fmt::format(".SS {}\n", row.group);
    group = row.group;
    const SettingWords words = WordsOf(row);
    std::string facts = words.commands;
    if (!words.range.empty()) facts += fmt::format("; {}", words.range);
    if (!words.value.empty()) facts += fmt::format("; default {}", words.value);
    page += ManEntry(fmt::format("--{}", row.name), words.kind == "switch" ? "" : words.kind,
                     fmt::format("{} ({})", row.help, facts));
  }
  return page +
         ".SH EXIT STATUS\n0: done. 1: training failed for good. 2: wrong usage or configuration. "
         "130: stopped by Ctrl\\-C, results saved. 143: to be started again.\n";
}

std::string BashCompletion(const CommandText& program) {
  return fmt::format(
      "# bash completion of passel, printed by passel help --format=bash\n"
      "_passel() {{\n"
      "  local words='' path=passel word\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    case \"$path $word\" in {}) path+=\" $word\" ;; esac\n"
      "  done\n"
      "  case $path in\n{}  esac\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n"
      "  [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace\n"
      "}}\n"
      "complete -o default -F _passel passel\n",
      CommandPatterns(program), BashCases(program));
}

}  // namespace passel
