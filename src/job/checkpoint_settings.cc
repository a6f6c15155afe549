#include "job/checkpoint_settings.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "job/job_data.h"
#include "job/settings_table.h"
#include "optim/hyper_flags.h"
#include "optim/optimizer_table.h"
#include "train/checkpoint_set.h"

namespace passel::job {
namespace {

Status CheckIsThere(const char* flag, const std::string& path) {
  std::error_code nowhere;  // the working directory was deleted
  const std::filesystem::path parent = std::filesystem::absolute(path, nowhere).parent_path();
  if (::access(path.c_str(), R_OK) == 0) return {};
  if (NamesCheckpoint(path) && ::access(parent.c_str(), R_OK | X_OK) == 0) return {};
  return InvalidArgument(
      fmt::format("{} {}: there is no such checkpoint: name a folder, a checkpoint in one "
                  "(FOLDER/model.ckpt-500) or a file",
                  flag, path));
}

// As TextOf() has it; "" if nothing says so.
std::string DefaultOf(const SettingRow& row, const std::string& optimizer) {
  if (row.traits.shown != nullptr) return row.traits.shown;
  Result<OptimizerConfig> config = ParseOptimizer(optimizer);
  if (!config.ok()) return {};
  const Hyperparameter* const parameter = HyperparameterOf(config->kind, row.name);
  if (parameter == nullptr) return {};
  config->learning_rate = RowOf(config->kind).learning_rate;
  const double value = parameter->field.Get(*config);
  if (parameter->field.is_switch()) return value != 0 ? "true" : "false";
  return fmt::format("{}", value);
}

// One that says how to save; null: none is given.
const char* FlagOfSaves(const JobSettings& s) {
  const JobSettings none;
  if (s.save_steps != none.save_steps) return "--save_steps";
  if (s.save_secs != none.save_secs) return "--save_secs";
  if (s.keep_checkpoints != none.keep_checkpoints) return "--keep_checkpoints";
  if (s.keep_every_hours != none.keep_every_hours) return "--keep_every_hours";
  return s.checkpoint_consistent ? "--checkpoint_consistent" : nullptr;
}

}  // namespace

Result<CheckpointConfig> CheckCheckpointSettings(const JobSettings& s) {
  CheckpointConfig config;
  config.folder = s.checkpoint_dir;
  config.interval = std::chrono::nanoseconds(static_cast<std::int64_t>(s.save_secs * 1e9));
  config.steps = s.save_steps;
  config.keep = {s.keep_checkpoints, s.keep_every_hours};
  config.resume = s.resume;
  config.init = s.init;
  config.consistent = s.checkpoint_consistent;
  if (const char* flag = config.folder.empty() ? FlagOfSaves(s) : nullptr; flag != nullptr) {
    return InvalidArgument(
        fmt::format("{} is of checkpoints, and none are made: add, for example, "
                    "--checkpoint_dir=checkpoints",
                    flag));
  }
  if (config.resume.empty()) {
    return InvalidArgument("--resume is auto, never, or the path of a checkpoint, not \"\"");
  }
  if (config.ResumesFromPath()) {
    PASSEL_RETURN_IF_ERROR(CheckIsThere("--resume", config.resume));
    if (!config.init.empty()) {
      return InvalidArgument("--init and --resume PATH both say what to begin with: omit one");
    }
  }
  if (!config.init.empty()) PASSEL_RETURN_IF_ERROR(CheckIsThere("--init", config.init));
  return config;
}

Json SettingsToKeep(JobSettings settings) {
  Json kept = Json::MakeObject();
  const SettingsView view = ViewOf(settings);
  for (const SettingRow& row : SettingsTable()) {
    const std::string text = TextOf(row.value(view));
    if (row.traits.to_child && !text.empty()) kept[row.name] = text;
  }
  return kept;
}

std::string ChangedMathematics(JobSettings now, const Json& then) {
  std::string changed;
  const SettingsView view = ViewOf(now);
  for (const SettingRow& row : SettingsTable()) {
    if (!row.traits.mathematics) continue;
    const std::string text = TextOf(row.value(view));
    const Json* const former = then.Find(row.name);
    const std::string was = former != nullptr && former->text() ? *former->text() : "";
    const auto in_force = [&](const std::string& value) {
      return value.empty() ? DefaultOf(row, now.optimizer) : value;
    };
    if (in_force(text) == in_force(was)) continue;
    const auto shown = [](const std::string& value) {
      return value.empty() ? std::string("its default") : value;
    };
    changed += fmt::format("{}--{} {} (was {})", changed.empty() ? "" : ", ", row.name, shown(text),
                           shown(was));
  }
  return changed;
}

std::string ChangedData(const std::string& now, const Json& then) {
  const std::vector<JobData> own = JobDataFromJson(now), former = JobDataFromJson(then.Write());
  if (own.empty() || former.empty() || own[0].crc32.empty() || former[0].crc32.empty()) return {};
  if (own[0].crc32 == former[0].crc32) return {};
  return fmt::format("the data of {} (was other data, of {})", own[0].directory,
                     former[0].directory);
}

}  // namespace passel::job
