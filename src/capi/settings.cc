#include "capi/settings.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "capi/run_settings.h"
#include "cluster/cluster_spec.h"
#include "cluster/resolve.h"
#include "job/program_settings.h"
#include "job/settings_table.h"
#include "train/worker_loop.h"

namespace passel::capi {
namespace {

// What names a task, where nothing of it is in the settings. Not the variables of ranks: rank 0
// would have to start a ps out of a program that is not ours.
constexpr auto kEnvironment = std::to_array<std::string_view>(
    {"TF_CONFIG", "JOB_NAME", "TASK_INDEX", "PS_HOSTS", "WORKER_HOSTS", "PS_KEY", "WORKER_KEY"});

constexpr std::size_t kShown = 256;

template <typename T>
struct Inner {
  using Type = T;
};
template <typename T>
struct Inner<std::optional<T>> {
  using Type = T;
};

// The field takes the text. False: it is no value of its kind.
template <typename Field>
bool Take(const std::string& text, Field* field) {
  using Value = typename Inner<Field>::Type;
  if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
    field->push_back(text);
    return true;
  } else if constexpr (std::is_same_v<Value, std::string>) {
    *field = text;
    return true;
  } else if constexpr (std::is_same_v<Value, bool>) {
    *field = text == "true" || text == "1";
    return *field || text == "false" || text == "0";
  } else {
    Value value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) return false;
    if constexpr (std::is_floating_point_v<Value>) {
      if (!std::isfinite(value)) return false;
    }
    *field = value;
    return true;
  }
}

Status TakeSetting(const std::string& name, const std::string& text, job::Task* task) {
  const job::SettingRow* const row = job::FindSetting(name);
  const std::string shown = Printable(name, kShown);
  if (row == nullptr) {
    return InvalidArgument(fmt::format(
        "the setting {} is not known: passel task --help all lists them; omit it", shown));
  }
  if (!job::MeansToProgram(row->name)) {
    return InvalidArgument(fmt::format(
        "the setting {} means nothing to a program that has its own data, model and loop: omit it",
        shown));
  }
  const job::SettingsView view = job::ViewOf(task->job, &task->flags.devices, &task->flags);
  // Of several rows of that name the one of tasks.
  job::SettingValue value;
  for (const job::SettingRow& each : job::SettingsTable()) {
    if (each.name != row->name) continue;
    value = each.value(view);
    if (value.index() != 0) break;
  }
  const bool taken = std::visit(
      [&](auto field) {
        if constexpr (std::is_pointer_v<decltype(field)>) {
          return Take(text, field);
        } else {
          return false;
        }
      },
      value);
  if (!taken) {
    return InvalidArgument(
        fmt::format("the setting {}={} is not a value of its kind: use a number, "
                    "or true or false for a switch",
                    shown, Printable(text, kShown)));
  }
  task->job.typed.Keep("--" + row->name, text);
  return {};
}

Status TakeAll(std::span<const std::string> settings, job::Task* task,
               std::map<std::string, std::string>* given) {
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return InvalidArgument(
          fmt::format("the setting \"{}\" is not NAME=VALUE: write, for example, \"mode=barrier\"",
                      Printable(setting, kShown)));
    }
    const std::string name = setting.substr(0, equals), text = setting.substr(equals + 1);
    if (!given->emplace(name, text).second) {
      return InvalidArgument(fmt::format(
          "the setting {} is given twice, as {} and {}: omit one", Printable(name, kShown),
          Printable(given->at(name), kShown), Printable(text, kShown)));
    }
    PASSEL_RETURN_IF_ERROR(TakeSetting(name, text, task));
  }
  return {};
}

Result<ResolvedConfig> ResolveTask(const job::Task& task,
                                   const std::map<std::string, std::string>& given) {
  std::vector<Flag> flags;
  for (const char* name : {"job_name", "task_index", "ps_hosts", "worker_hosts"}) {
    const auto found = given.find(name);
    Flag flag;
    flag.name = name;
    flag.type = flag.name == "task_index" ? FlagType::kInteger : FlagType::kText;
    flag.given = found != given.end();
    if (flag.given) flag.value = found->second;
    flags.push_back(std::move(flag));
  }
  // Who names a cluster here is a worker of it.
  if (!flags[0].given && (flags[2].given || flags[3].given)) {
    flags[0].value = "worker";
    flags[0].given = true;
  }
  ResolveInputs inputs;
  inputs.flags = flags;
  inputs.more_workers = task.flags.max_workers.has_value();
  inputs.environment = [](const std::string& name) -> std::optional<std::string> {
    if (std::ranges::find(kEnvironment, name) == kEnvironment.end()) return std::nullopt;
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  return Resolve(inputs);
}

}  // namespace

Result<Settings> ReadSettings(std::span<const std::string> settings) {
  Settings result;
  job::Task& task = result.task;
  task.job.log_level = "warning";  // the terminal is the program's
  std::map<std::string, std::string> given;
  PASSEL_ASSIGN_OR_RETURN(const RunSettings of_run, ReadRunSettings(settings));
  task.flags.supervised = of_run.supervised;
  PASSEL_RETURN_IF_ERROR(TakeAll(of_run.all, &task, &given));
  PASSEL_RETURN_IF_ERROR(job::StartLog(task.job));
  PASSEL_ASSIGN_OR_RETURN(result.config, job::CheckJobSettings(task.job));
  result.config.worker.train_steps = kNoStepLimit;  // the program knows when to end
  PASSEL_ASSIGN_OR_RETURN(const ResolvedConfig resolved, ResolveTask(task, given));
  result.alone = !resolved.distributed;
  if (result.alone) {
    task.job_id = task.flags.job_id.empty() ? fmt::format("job-{}", ::getpid()) : task.flags.job_id;
    PASSEL_RETURN_IF_ERROR(ValidateJobId(task.job_id));
    return result;
  }
  if (resolved.task->job == "ps" || resolved.task->job == "evaluator") {
    return InvalidArgument(
        fmt::format("this program trains, and {} does not: let job_name be worker or chief, and "
                    "start the {} with passel task",
                    resolved.task->ToString(), resolved.task->job));
  }
  PASSEL_RETURN_IF_ERROR(job::PrepareTask(resolved, &task));
  return result;
}

}  // namespace passel::capi
