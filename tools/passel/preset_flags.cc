#include "tools/passel/preset_flags.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "train/preset.h"

namespace passel {
namespace {

constexpr std::array<std::string_view, 3> kStopRules = {"train_steps", "epochs", "local_steps"};

std::string Dashed(std::string_view flag) { return "--" + std::string(flag); }

}  // namespace

void AddPrintPreset(Command& command) {
  const auto describe = [command](const std::string& name) -> Result<std::string> {
    PASSEL_ASSIGN_OR_RETURN(const Preset* const found, FindPreset(name));
    std::string text =
        DescribePreset(*found, [&](std::string_view flag) { return command.Has(Dashed(flag)); });
    text.pop_back();  // the line's end comes from who prints it
    return text;
  };
  command.AddPrinter("--print_preset", "Show the flags of a preset, and end", describe)
      .Group("Preset");
}

Result<std::set<std::string>> ApplyPreset(Command& command, const std::string& name,
                                          const std::set<std::string>& in_file) {
  std::set<std::string> changed;
  if (name.empty()) return changed;
  const auto given = [&](std::string_view flag) {
    return command.Given(Dashed(flag)) || in_file.contains(std::string(flag));
  };
  PASSEL_ASSIGN_OR_RETURN(const Preset* preset, FindPreset(name));
  const bool stop_rule_given = std::any_of(kStopRules.begin(), kStopRules.end(), given);
  for (const PresetSetting& setting : preset->settings) {
    if (!command.Has(Dashed(setting.flag)) || given(setting.flag)) continue;
    const bool stop_rule =
        std::find(kStopRules.begin(), kStopRules.end(), setting.flag) != kStopRules.end();
    if (stop_rule && stop_rule_given) continue;
    const Status set = command.SetDefault(Dashed(setting.flag), std::string(setting.value));
    // The table is ours: a value that its flag does not take is a bug.
    PASSEL_CHECK(set.ok(), fmt::format("preset {} sets --{} to {}: {}", name, setting.flag,
                                       setting.value, set.message())
                               .c_str());
    changed.emplace(setting.flag);
  }
  return changed;
}

void NotePresetDir(const std::string& preset, const std::set<std::string>& changed,
                   job::SourceSettings* source) {
  if (!changed.contains("data_dir")) return;
  source->preset = preset;
  source->usual_dir = std::exchange(source->data_dir, "");
}

void NotePresetDevices(const std::string& preset, const std::set<std::string>& changed,
                       job::DeviceSettings* devices) {
  if (changed.contains("num_gpus")) devices->num_gpus_origin = "preset " + preset;
  devices->fraction_of_preset = changed.contains("per_process_gpu_memory_fraction");
}

void FollowProgram(const std::string& preset, job::JobSettings* flags) {
  const Result<const Preset*> program = FindPreset(preset);
  if (program.ok() && (*program)->one_folder) {
    if (flags->checkpoint_dir.empty()) flags->checkpoint_dir = flags->logs_dir;
    if (flags->logs_dir.empty()) flags->logs_dir = flags->checkpoint_dir;
  }
  if (!preset.empty() && flags->replicas_to_aggregate && !flags->sync_replicas && !flags->mode &&
      flags->mode_schedule.empty()) {
    LogWarning("--replicas_to_aggregate {} is not used: it is for --sync_replicas",
               *flags->replicas_to_aggregate);
    flags->replicas_to_aggregate.reset();
  }
}

bool WantsGpuPerWorker(const std::string& preset) {
  const Result<const Preset*> found = FindPreset(preset);
  return found.ok() && (*found)->gpu_per_worker;
}

}  // namespace passel
