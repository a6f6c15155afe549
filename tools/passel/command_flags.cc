#include "tools/passel/command_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cluster/text.h"

namespace passel {
namespace {

// Texts of several values.
bool IsListOfText(const CLI::Option& option) {
  return option.get_expected_max() > 1 || option.get_single_name() == "hidden_units" ||
         option.get_single_name() == "gpus";
}

FlagType TypeOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return FlagType::kBool;
  if (IsListOfText(option)) return FlagType::kList;
  const std::string type = option.get_type_name();
  if (type == "INT" || type == "UINT") return FlagType::kInteger;
  if (type == "FLOAT") return FlagType::kNumber;
  return FlagType::kText;
}

std::string NameOf(const CLI::Option& option) {
  return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

std::string ValueOf(const CLI::Option& option, FlagType type) {
  if (type == FlagType::kBool) {
    return (option.count() > 0 ? option.as<bool>() : option.get_default_str() == "true") ? "true"
                                                                                         : "false";
  }
  if (option.count() == 0) return option.get_default_str();
  std::string text;
  for (const std::string& value : option.results()) text += (text.empty() ? "" : ",") + value;
  return text;
}

}  // namespace

std::vector<Flag> CollectFlags(const CLI::App& command,
                               const std::vector<std::string>& not_in_file) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = NameOf(*option);
    if (name.empty() || name == "help" || name == "help-all" || name == "print_preset" ||
        option->get_group().empty())
      continue;
    Flag flag;
    flag.name = name;
    flag.type = TypeOf(*option);
    flag.value = ValueOf(*option, flag.type);
    flag.given = option->count() > 0;
    flag.in_file = std::find(not_in_file.begin(), not_in_file.end(), name) == not_in_file.end();
    flags.push_back(std::move(flag));
  }
  return flags;
}

Result<ConfigFile> ParseCommandFile(const std::string& path, const std::string& text,
                                    const CLI::App& command) {
  std::vector<FileFlag> known;
  for (const Flag& flag : CollectFlags(command)) {
    if (flag.in_file) known.push_back({flag.name, flag.type});
  }
  return ParseConfigFile(path, text, known);
}

Status ApplyFileSettings(const ResolvedConfig& config, CLI::App& command) {
  for (const Setting& setting : config.settings) {
    if (setting.source != Source::kFile && setting.source != Source::kRanks) continue;
    CLI::Option* const option = command.get_option_no_throw("--" + setting.name);
    if (option == nullptr || option->count() > 0) continue;
    try {
      option->add_result(setting.value);
      option->run_callback();
    } catch (const CLI::Error& error) {
      return InvalidArgument(fmt::format("{} ({})", error.what(), Printable(setting.origin, 256)));
    }
  }
  return {};
}

Status ApplyConfigFile(const std::string& path, CLI::App& command) {
  if (path.empty()) return {};
  const std::vector<Flag> flags = CollectFlags(command);
  ResolveInputs inputs;
  inputs.flags = flags;
  inputs.config_path = path;
  PASSEL_ASSIGN_OR_RETURN(inputs.config_text, ReadConfigFile(path));
  // First: a cluster would have to be whole to be resolved.
  PASSEL_ASSIGN_OR_RETURN(const ConfigFile file,
                          ParseCommandFile(path, *inputs.config_text, command));
  for (const char* name : {"job_name", "task_index", "ps_hosts", "worker_hosts"}) {
    const auto found = file.values.find(name);
    if (found == file.values.end()) continue;
    return InvalidArgument(fmt::format(
        "{}:{}:{}: {} names a cluster, but passel {} starts its own tasks: leave it away, or start "
        "each task with passel task --config",
        path, found->second.line, found->second.column, name, command.get_name()));
  }
  PASSEL_ASSIGN_OR_RETURN(const ResolvedConfig config, Resolve(inputs));
  return ApplyFileSettings(config, command);
}

}  // namespace passel
