// `passel task`: one task of a cluster, in its own terminal, container, or under a supervisor.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>

#include "base/log.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "cluster/resolve.h"
#include "job/devices.h"
#include "job/effective_settings.h"
#include "job/evaluator_task.h"
#include "job/exit_code.h"
#include "job/job_config.h"
#include "job/output_path.h"
#include "job/ps_of_ranks.h"
#include "job/ps_task.h"
#include "job/task.h"
#include "job/worker_task.h"
#include "tools/passel/command_flags.h"
#include "tools/passel/commands.h"
#include "tools/passel/download_only.h"
#include "tools/passel/flags.h"
#include "tools/passel/preset_flags.h"
#include "tools/passel/processor_time.h"
#include "tools/passel/train_command.h"

namespace passel {
namespace {

// Everything that can say what this task is to do. What the file sets ends up in the options.
Result<ResolvedConfig> ResolveTaskConfig(Task& task, CLI::App& command) {
  ResolveInputs inputs;
  if (!task.flags.config.empty()) {
    inputs.config_path = task.flags.config;
    PASSEL_ASSIGN_OR_RETURN(inputs.config_text, ReadConfigFile(task.flags.config));
  }
  // The preset gives flags other defaults: first of all, but the file may be what names it.
  std::set<std::string> in_file;
  if (inputs.config_text) {
    PASSEL_ASSIGN_OR_RETURN(const ConfigFile file,
                            ParseCommandFile(inputs.config_path, *inputs.config_text, command));
    for (const auto& [name, value] : file.values) in_file.insert(name);
    if (task.flags.preset.empty() && in_file.contains("preset")) {
      task.flags.preset = file.values.find("preset")->second.text;
    }
  }
  PASSEL_ASSIGN_OR_RETURN(const std::set<std::string> from_preset,
                          ApplyPreset(command, task.flags.preset, in_file));
  std::vector<Flag> flags = CollectFlags(command);
  // What they ask for is no setting of the task.
  std::erase_if(flags, [](const Flag& flag) {
    return flag.name == "print_config" || flag.name == "print_placement";
  });
  for (Flag& flag : flags) {
    if (from_preset.contains(flag.name)) flag.default_origin = "preset " + task.flags.preset;
  }
  NotePresetDir(task.flags.preset, from_preset, &task.job.source);
  task.flags.devices.num_gpus_given =
      command.get_option("--num_gpus")->count() > 0 || in_file.contains("num_gpus");
  if (from_preset.contains("num_gpus")) {
    task.flags.devices.num_gpus_origin = "preset " + task.flags.preset;
  }
  inputs.flags = flags;
  inputs.gpu_per_worker = WantsGpuPerWorker(task.flags.preset);
  inputs.visible_gpus = [&task] { return GpusForRanks(task.flags.devices); };
  // A supervisor says everything in flags; the environment it was started in is about itself.
  if (!task.flags.supervised) {
    inputs.environment = [](const std::string& name) -> std::optional<std::string> {
      const char* const value = std::getenv(name.c_str());
      if (value == nullptr) return std::nullopt;
      return value;
    };
  }
  PASSEL_ASSIGN_OR_RETURN(ResolvedConfig config, Resolve(inputs));
  PASSEL_RETURN_IF_ERROR(ApplyFileSettings(config, command));
  return config;
}

// What can be said of the flags before anything is waited for, and before anything is printed.
Status CheckTask(const Task& task, const ResolvedConfig& resolved, const JobConfig& config) {
  if (task.flags.existing_servers && !resolved.distributed) {
    return InvalidArgument(
        "--existing_servers needs a cluster, and none is named: give --ps_hosts, --worker_hosts, "
        "--job_name and --task_index");
  }
  if (task.flags.existing_servers &&
      (resolved.task->job == "ps" || resolved.task->job == "evaluator")) {
    return InvalidArgument(
        fmt::format("--existing_servers is for tasks that train, and {} does not: leave it away",
                    resolved.task->ToString()));
  }
  PASSEL_RETURN_IF_ERROR(CheckDevices(task.flags.devices, task.job.typed, resolved));
  // Of a cluster that is seen in part nobody knows how many ps there are.
  if (resolved.partial) return {};
  if (resolved.distributed) {
    const ClusterSpec& cluster = resolved.cluster;
    PASSEL_RETURN_IF_ERROR(CheckSlowWorkers(
        config,
        cluster.num_tasks("worker") + cluster.num_tasks("chief") + cluster.num_tasks("master")));
  }
  return CheckPins(config.model, std::max(1, resolved.cluster.num_tasks("ps")), config.placement);
}

int TrainAlone(Task& task) {
  TrainFlags flags;
  flags.job = task.job;
  flags.devices = task.flags.devices;
  flags.ps = 0;
  flags.workers = 1;
  flags.job_id = task.flags.job_id;
  flags.save = task.flags.save;
  return Train(flags);
}

int RunTask(Task& task, CLI::App& command) {
  const int error_fd = task.flags.error_fd;
  if (error_fd >= 0) WatchProcessorTime(error_fd);
  Result<ResolvedConfig> resolved = ResolveTaskConfig(task, command);
  // Whatever the role is, or whether there is one; but a file may say where the data goes.
  if (task.job.download_only && (resolved.ok() || task.flags.config.empty())) {
    return DownloadOnlyCommand(task.job.source);
  }
  if (!resolved.ok()) return FailTask(resolved.status(), error_fd);
  if (const Status status = StartLog(task.job); !status.ok()) return FailTask(status, error_fd);
  Result<JobConfig> config =
      CheckJobFlags(task.job, task.flags.supervised ? JobFlagsOf::kOther : JobFlagsOf::kTaskByHand);
  if (!config.ok()) return FailTask(config.status(), error_fd);
  if (const Status status = CheckTask(task, *resolved, *config); !status.ok()) {
    return FailTask(status, error_fd);
  }
  for (const std::string& warning : resolved->warnings) LogWarning("{}", warning);
  if (task.flags.print_config) {
    ShowEffective(task.job, *config, static_cast<int>(UsableCpus().size()), &*resolved);
    fmt::print("{}", resolved->Describe());
    std::fflush(stdout);  // before a line on standard error
    if (const Status whole = resolved->CheckComplete(); !whole.ok()) {
      LogWarning("this task would not start: {}", whole.message());
    }
    return kExitDone;
  }
  if (task.flags.print_placement) {
    return PrintPlacement(task.job.source, *config, resolved->cluster.num_tasks("ps"));
  }
  if (!task.flags.save.empty()) {
    if (const Status status = CheckOutputPath("--save", task.flags.save); !status.ok()) {
      return FailTask(status);
    }
  }
  if (!resolved->distributed) return TrainAlone(task);
  ::signal(SIGPIPE, SIG_IGN);  // training goes on without readers of its output
  if (const Status status = PrepareTask(*resolved, &task); !status.ok()) return FailTask(status);
  SetLogName(task.id.ToString());
  nvtx::NameThread(task.id.ToString());
  if (!task.flags.supervised) {
    nvtx::WarnIfMissing();  // of a supervised task the supervisor has said it
    LogInfo("{}", resolved->Announcement());
  }
  if (resolved->starts_ps) {
    Result<PsOfRanks> ps = PsOfRanks::Start(*resolved);
    return ps.ok() ? ps->AwaitEnd(RunWorkerTask(task, *config)) : FailTask(ps.status());
  }
  if (task.id.job != "ps" && task.id.job != "evaluator") return RunWorkerTask(task, *config);
  MakeLogLines(*config, task.id, false).Task();
  return task.id.job == "ps" ? RunPsTask(task, *config) : RunEvaluatorTask(task, *config);
}

}  // namespace

void AddTaskCommand(CLI::App& app, Run* run) {
  auto task = std::make_shared<Task>();
  CLI::App* command = app.add_subcommand(
      "task", "Run one task of a cluster, in its own terminal or container, or train alone");
  AddTaskFlags(*command, &task->flags);
  AddPresetFlags(*command, &task->flags.preset);
  AddJobFlags(*command, &task->job);
  command->callback(
      [task, run, command] { *run = [task, command] { return RunTask(*task, *command); }; });
}

}  // namespace passel
