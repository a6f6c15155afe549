#include "tools/passel/arguments.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>

#include "cluster/text.h"

namespace passel {
namespace {

// The innermost command that was named.
const CLI::App& UsedCommand(const CLI::App& app) {
  const CLI::App* used = &app;
  for (auto chosen = used->get_subcommands(); !chosen.empty(); chosen = used->get_subcommands()) {
    used = chosen[0];
  }
  return *used;
}

std::vector<std::string> FlagNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

std::vector<std::string> CommandNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

std::string Nearest(const std::string& name, const std::vector<std::string>& known,
                    const std::string& dashes) {
  const std::string_view nearest = NearestName(name, known);
  return nearest.empty() ? "" : fmt::format("did you mean {}{}? ", dashes, nearest);
}

// One of 64 bits, which a flag may still not take.
bool IsWholeNumber(const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

std::vector<std::string> ReversedArguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const bool empty_value =
        text.size() > 3 && text.rfind("--", 0) == 0 && text.find('=') == text.size() - 1;
    arguments.push_back(empty_value ? text.substr(0, text.size() - 1) : text);
    if (empty_value) arguments.emplace_back();
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

std::string CommandName(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands()[0];
    name += " " + at->get_name();
  }
  return name;
}

Status CheckArguments(const CLI::App& app) {
  static const std::vector<std::string> kMayBeEmpty = {"job_name", "task_index", "ps_hosts",
                                                       "worker_hosts"};
  for (const CLI::Option* option : UsedCommand(app).get_options()) {
    const std::string name = option->get_lnames().empty() ? "" : option->get_lnames().front();
    if (std::find(kMayBeEmpty.begin(), kMayBeEmpty.end(), name) != kMayBeEmpty.end()) continue;
    for (const std::string& value : option->results()) {
      if (!value.empty()) continue;
      return InvalidArgument(fmt::format("{} is empty: give it a value, or leave it away",
                                         name.empty() ? option->get_name() : "--" + name));
    }
  }
  return {};
}

std::string Explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& used = UsedCommand(app);
  const std::string command = CommandName(app);
  const std::string see = fmt::format("see {} --help", command);
  const std::vector<std::string> commands = CommandNames(used);
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  // Of several the flags first: a value that is left over belongs to one of them.
  const auto flag = std::find_if(rest.begin(), rest.end(),
                                 [](const std::string& text) { return text.starts_with("--"); });
  if (flag != rest.end()) {
    const std::string name = flag->substr(2, flag->find('=') - 2);
    return fmt::format("{}: --{} is not known: {}{}", command, Printable(name, 64),
                       Nearest(name, FlagNames(used), "--"), see);
  }
  if (!rest.empty()) {
    const std::string& word = rest.front();
    return commands.empty()
               ? fmt::format("{}: the argument {} has no meaning here: leave it away, {}", command,
                             Quoted(word), see)
               : fmt::format("{}: there is no command {}: {}{}", command, Quoted(word),
                             Nearest(word, commands, ""), see);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    for (const CLI::Option* option : used.get_options()) {
      const std::string type = option->get_type_name();
      if (option->results().empty() || (type != "INT" && type != "UINT" && type != "FLOAT")) {
        continue;
      }
      const std::string& value = option->results().back();
      if (std::string(error.what()).find(option->get_name() + " = ") == std::string::npos) continue;
      return fmt::format("{}: {} is {}, not {}: {}", command, option->get_name(),
                         type == "FLOAT" ? "a number"
                                         : fmt::format("a whole number that fits {} bits",
                                                       IsWholeNumber(value) ? 32 : 64),
                         Quoted(value), see);
    }
  }
  return fmt::format("{}: {}: {}", command, error.what(), see);
}

}  // namespace passel
