#include "tools/passel/command_flags.h"

#include <fmt/core.h>

#include "cluster/text.h"
#include "job/settings_table.h"

namespace passel {

std::vector<Flag> CollectFlags(const Command& command) {
  std::vector<Flag> flags = command.Flags();
  for (Flag& flag : flags) {
    const job::SettingRow* const row = job::FindSetting(flag.name);
    flag.in_file = row != nullptr && row->traits.in_file;
    if (row != nullptr && row->traits.list) flag.type = FlagType::kList;
  }
  return flags;
}

Result<ConfigFile> ParseCommandFile(const std::string& path, const std::string& text,
                                    const Command& command) {
  std::vector<FileFlag> known;
  for (const Flag& flag : CollectFlags(command)) {
    if (flag.in_file) known.push_back({flag.name, flag.type});
  }
  return ParseConfigFile(path, text, known);
}

Status ApplyFileSettings(const ResolvedConfig& config, Command& command) {
  for (const Setting& setting : config.settings) {
    if (setting.source != Source::kFile && setting.source != Source::kRanks) continue;
    const std::string flag = "--" + setting.name;
    if (!command.Has(flag) || command.Given(flag)) continue;
    if (const Status given = command.Give(flag, setting.value); !given.ok()) {
      return InvalidArgument(
          fmt::format("{} ({})", given.message(), Printable(setting.origin, 256)));
    }
  }
  return {};
}

Status ApplyConfigFile(const std::string& path, Command& command) {
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
        "{}:{}:{}: {} names a cluster, but passel {} starts its own tasks: omit it, or start "
        "each task with passel task --config",
        path, found->second.line, found->second.column, name, command.name()));
  }
  PASSEL_ASSIGN_OR_RETURN(const ResolvedConfig config, Resolve(inputs));
  return ApplyFileSettings(config, command);
}

}  // namespace passel
