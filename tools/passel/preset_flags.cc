#include "tools/passel/preset_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "train/preset.h"

namespace passel {
namespace {

constexpr std::array<std::string_view, 3> kStopRules = {"train_steps", "epochs", "local_steps"};

CLI::Option* Find(CLI::App& command, std::string_view flag) {
  return command.get_option_no_throw("--" + std::string(flag));
}

}  // namespace

void AddPresetFlags(CLI::App& command, std::string* preset) {
  command
      .add_option("--preset", *preset,
                  fmt::format("Flags of a reference program: {}. A flag that is given wins over it",
                              PresetNames()))
      ->group("Preset");
  command
      .add_option_function<std::string>(
          "--print_preset",
          [&command](const std::string& name) {
            const Result<const Preset*> found = FindPreset(name);
            if (!found.ok()) throw CLI::ValidationError(found.status().message());
            std::string text = DescribePreset(
                **found, [&](std::string_view flag) { return Find(command, flag) != nullptr; });
            text.pop_back();  // the line's end comes from who prints it
            throw CLI::CallForVersion(text, 0);
          },
          "Show the flags of one of them, and end")
      ->group("Preset")
      ->trigger_on_parse();
}

Result<std::set<std::string>> ApplyPreset(CLI::App& command, const std::string& name,
                                          const std::set<std::string>& in_file) {
  std::set<std::string> changed;
  if (name.empty()) return changed;
  const auto given = [&](std::string_view flag) {
    const CLI::Option* option = Find(command, flag);
    return (option != nullptr && option->count() > 0) || in_file.contains(std::string(flag));
  };
  PASSEL_ASSIGN_OR_RETURN(const Preset* preset, FindPreset(name));
  const bool stop_rule_given = std::any_of(kStopRules.begin(), kStopRules.end(), given);
  for (const PresetSetting& setting : preset->settings) {
    CLI::Option* option = Find(command, setting.flag);
    if (option == nullptr || given(setting.flag)) continue;
    const bool stop_rule =
        std::find(kStopRules.begin(), kStopRules.end(), setting.flag) != kStopRules.end();
    if (stop_rule && stop_rule_given) continue;
    option->run_callback_for_default();
    try {
      option->default_val(std::string(setting.value));
    } catch (const CLI::Error& error) {
      // The table is ours: a value that its flag does not take is a bug.
      PASSEL_CHECK(false, fmt::format("preset {} sets --{} to {}: {}", name, setting.flag,
                                      setting.value, error.what())
                              .c_str());
    }
    changed.emplace(setting.flag);
  }
  return changed;
}

void NotePresetDir(const std::string& preset, const std::set<std::string>& changed,
                   SourceFlags* source) {
  if (!changed.contains("data_dir")) return;
  source->preset = preset;
  source->usual_dir = std::exchange(source->data_dir, "");
}

bool WantsGpuPerWorker(const std::string& preset) {
  const Result<const Preset*> found = FindPreset(preset);
  return found.ok() && (*found)->gpu_per_worker;
}

}  // namespace passel
