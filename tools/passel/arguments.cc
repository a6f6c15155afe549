#include "tools/passel/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "cluster/text.h"

namespace passel {
namespace {

std::vector<std::string> FlagNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

bool IsKnown(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> CommandNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

// The one command that has a command of that name; "" if there is none, or more than one, or if it
// is itself a command.
std::string ParentOf(const CLI::App& app, const std::string& word) {
  std::string parent;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == word) return "";
    if (!IsKnown(word, CommandNames(*sub))) continue;
    if (!parent.empty()) return "";
    parent = sub->get_name();
  }
  return parent;
}

// Which argument of the command is at fault, and how often it was given.
std::string ExplainNumber(const CLI::App& command, const CLI::ArgumentMismatch& error) {
  const std::string text = error.what();
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (!text.starts_with(name + ":")) continue;
    const auto given = static_cast<int>(option->results().size());
    const int most = option->get_expected_max();
    if (given <= most) return fmt::format("{} needs a value", name);
    if (most == 1) {
      const auto& names = option->get_lnames();  // the alias may be one of those given
      const std::string all = fmt::format("--{}", fmt::join(names, " or --"));
      return fmt::format("{} is given {} times: give it once", names.empty() ? name : all, given);
    }
    return fmt::format("{} takes at most {} values, not {}", name, most, given);
  }
  return text;
}

bool IsSwitch(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

bool IsInteger(const CLI::Option& option) {
  return option.get_type_name() == "INT" || option.get_type_name() == "UINT";
}

// CLI11 reads 0400 as 256, and takes the nearest number for one that is too large.
Status CheckInteger(const CLI::Option& option, const std::string& flag, const std::string& text) {
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const std::string digits = text.substr(sign);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return {};
  if (digits.size() > 1 && digits[0] == '0') {
    return InvalidArgument(
        fmt::format("{} is {}, which begins with 0 as octal numbers do: write it without that",
                    flag, Quoted(text)));
  }
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const std::uint64_t most =
      option.get_type_name() == "UINT"
          ? std::numeric_limits<std::uint64_t>::max()
          : static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) +
                (text.starts_with('-') ? 1 : 0);
  if (error == std::errc() && number <= most) return {};
  return InvalidArgument(fmt::format(
      "{} is a whole number that fits 64 bits, not {}: use one nearer to 0", flag, Quoted(text)));
}

std::string Nearest(const std::string& name, const std::vector<std::string>& known,
                    const std::string& dashes) {
  const std::string_view nearest = NearestName(name, known);
  return nearest.empty() ? "" : fmt::format("did you mean {}{}? ", dashes, nearest);
}

// What other programs call a flag of this one, with _ for -.
constexpr std::pair<std::string_view, std::string_view> kNamesElsewhere[] = {
    {"lr", "learning_rate"}, {"num_workers", "workers"},   {"nproc_per_node", "workers"},
    {"bs", "batch_size"},    {"max_steps", "train_steps"}, {"num_epochs", "epochs"},
    {"num_ps", "ps"},
};

// "did you mean --learning_rate? " for --lr; "" where nothing is near.
std::string MeantFlag(const std::string& name, const std::vector<std::string>& known) {
  std::string underscored = name;
  std::replace(underscored.begin(), underscored.end(), '-', '_');
  for (const auto& [elsewhere, here] : kNamesElsewhere) {
    if (underscored == elsewhere && IsKnown(std::string(here), known)) {
      return fmt::format("did you mean --{}? ", here);
    }
  }
  return Nearest(name, known, "--");
}

// One of 64 bits, which a flag may still not take.
bool IsWholeNumber(const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

const CLI::App& UsedCommand(const CLI::App& app) {
  const CLI::App* used = &app;
  for (auto chosen = used->get_subcommands(); !chosen.empty(); chosen = used->get_subcommands()) {
    used = chosen[0];
  }
  return *used;
}

std::vector<std::string> ReversedArguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments;
  if (argc > 1) {
    if (const std::string parent = ParentOf(app, argv[1]); !parent.empty()) {
      arguments.push_back(parent);
    }
  }
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const bool asks_all = text == "--help" && i + 1 < argc && std::string(argv[i + 1]) == "all";
    if (asks_all || text == "--help=all") {
      arguments.emplace_back("--help-all");
      i += asks_all ? 1 : 0;
      continue;
    }
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
  const std::vector<std::string> flags = FlagNames(UsedCommand(app));
  for (const CLI::Option* option : UsedCommand(app).get_options()) {
    const std::string name = option->get_lnames().empty() ? "" : option->get_lnames().front();
    if (std::find(kMayBeEmpty.begin(), kMayBeEmpty.end(), name) != kMayBeEmpty.end()) continue;
    for (const std::string& value : option->results()) {
      const std::string shown = name.empty() ? option->get_name() : "--" + name;
      if (value.empty()) {
        return InvalidArgument(fmt::format("{} is empty: give it a value, or omit it", shown));
      }
      if (IsInteger(*option)) PASSEL_RETURN_IF_ERROR(CheckInteger(*option, shown, value));
      if (IsSwitch(*option) && IsWholeNumber(value) && value != "1" && value != "0" &&
          value != "-1") {
        return InvalidArgument(
            fmt::format("{} is true or false, not {}: use --{}=true", shown, Quoted(value), name));
      }
      // `--save --report=r.json`: a value was forgotten.
      const std::string flag = value.substr(0, value.find('='));
      if (flag.starts_with("--") && IsKnown(flag.substr(2), flags)) {
        return InvalidArgument(
            fmt::format("{} needs a value, and {} is a flag: give it one before that", shown,
                        Printable(value, 64)));
      }
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
  // A flag comes first, if there are several: a value that is left over belongs to one of them.
  const auto flag = std::find_if(rest.begin(), rest.end(),
                                 [](const std::string& text) { return text.starts_with("--"); });
  if (flag != rest.end()) {
    const std::string name = flag->substr(2, flag->find('=') - 2);
    if (IsKnown(name, FlagNames(used))) {
      return fmt::format(
          "{0}: --{1} stands where flags are not read: write it after {0}, and not "
          "behind a lone --",
          command, name);
    }
    return fmt::format("{}: --{} is not known: {}{}", command, Printable(name, 64),
                       MeantFlag(name, FlagNames(used)), see);
  }
  if (!rest.empty()) {
    const std::string& word = rest.front();
    if (command.ends_with(" run")) {
      return fmt::format("{}: write the program behind a lone --, as in  {} -- {}", command,
                         command, Printable(word, 64));
    }
    return commands.empty() ? fmt::format("{}: the argument {} has no meaning here: omit it, {}",
                                          command, Quoted(word), see)
                            : fmt::format("{}: there is no command {}: {}{}", command, Quoted(word),
                                          Nearest(word, commands, ""), see);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    for (const CLI::Option* option : used.get_options()) {
      const std::string type = option->get_type_name();
      if (option->results().empty()) continue;
      const std::string& value = option->results().back();
      if (std::string(error.what()).find(option->get_name() + " = ") == std::string::npos) continue;
      const bool whole = IsWholeNumber(value);
      const std::string wanted =
          IsSwitch(*option) ? "true or false"
          : type == "FLOAT" ? "a number"
          : whole && value.starts_with('-') && type == "UINT"
              ? "a whole number from 0 on"
              : fmt::format("a whole number that fits {} bits", whole ? 32 : 64);
      return fmt::format("{}: {} is {}, not {}: {}", command, option->get_name(), wanted,
                         Quoted(value), see);
    }
  }
  if (const auto* number = dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    return fmt::format("{}: {}, {}", command, ExplainNumber(used, *number), see);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty()) {
    return fmt::format("{}: a command is missing: name one of {}, {}", command,
                       fmt::join(commands, ", "), see);
  }
  return fmt::format("{}: {}: {}", command, error.what(), see);
}

}  // namespace passel
