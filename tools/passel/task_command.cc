// `passel task`: one task of a cluster, in its own terminal, container, or under a supervisor.

#include <fmt/core.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>

#include "base/log.h"
#include "base/subprocess.h"
#include "cluster/resolve.h"
#include "job/devices.h"
#include "job/effective_settings.h"
#include "job/exit_code.h"
#include "job/job_config.h"
#include "job/output_path.h"
#include "job/run_task.h"
#include "job/task.h"
#include "job/task_report.h"
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
Result<ResolvedConfig> ResolveTaskConfig(job::Task& task, Command& command) {
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
  task.flags.devices.num_gpus_given = command.Given("--num_gpus") || in_file.contains("num_gpus");
  NotePresetDevices(task.flags.preset, from_preset, &task.flags.devices);
  inputs.flags = flags;
  inputs.joins = task.flags.join;
  inputs.more_workers =
      task.flags.join || task.flags.max_workers.has_value() || in_file.contains("max_workers");
  inputs.gpu_per_worker = WantsGpuPerWorker(task.flags.preset);
  inputs.visible_gpus = [&task] { return job::GpusForRanks(task.flags.devices); };
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
  FollowProgram(task.flags.preset, &task.job);
  return config;
}

int TrainAlone(job::Task& task, std::int64_t start_ns) {
  job::TrainSettings flags;
  flags.job = task.job;
  flags.devices = task.flags.devices;
  flags.ps = 0;
  flags.workers = 1;
  flags.job_id = task.flags.job_id;
  flags.save = task.flags.save;
  flags.report = task.flags.report;
  return Train(flags, start_ns);
}

int TaskCommand(job::Task& task, Command command, std::int64_t start_ns) {
  const int error_fd = task.flags.error_fd;
  if (error_fd >= 0) WatchProcessorTime(error_fd);
  Result<ResolvedConfig> resolved = ResolveTaskConfig(task, command);
  // Whatever the role is, or whether there is one; but a file may say where the data goes.
  if (task.job.download_only && (resolved.ok() || task.flags.config.empty())) {
    return DownloadOnlyCommand(task.job.source);
  }
  if (!resolved.ok()) return job::FailTask(resolved.status(), error_fd);
  Result<job::JobConfig> config = job::CheckTaskSettings(task, *resolved);
  if (!config.ok()) return job::FailTask(config.status(), error_fd);
  for (const std::string& warning : resolved->warnings) LogWarning("{}", warning);
  if (task.flags.print_config) {
    job::ShowEffective(task.job, *config, static_cast<int>(UsableCpus().size()), &*resolved);
    fmt::print("{}", resolved->Describe());
    std::fflush(stdout);  // before a line on standard error
    if (const Status whole = resolved->CheckComplete(); !whole.ok()) {
      LogWarning("this task would not start: {}", whole.message());
    }
    return job::kExitDone;
  }
  if (task.flags.print_placement) {
    return PrintPlacement(task.job.source, *config, resolved->cluster.num_tasks("ps"));
  }
  if (!task.flags.save.empty()) {
    for (const Status& status :
         {job::CheckOutputPath("--save", task.flags.save),
          job::CheckNoCheckpointFile("--save", task.flags.save, task.job.checkpoint_dir)}) {
      if (!status.ok()) return job::FailTask(status);
    }
  }
  if (!resolved->distributed) return TrainAlone(task, start_ns);
  if (const Status status = job::CheckReportOf(task.flags, *resolved->task); !status.ok()) {
    return job::FailTask(status);
  }
  ::signal(SIGPIPE, SIG_IGN);  // training goes on without readers of its output
  return job::RunTask(task, *resolved, *config);
}

}  // namespace

void AddTaskCommand(Command& program, std::int64_t start_ns) {
  auto task = std::make_shared<job::Task>();
  Command command = program.AddCommand(
      "task", "Run one task of a cluster, in its own terminal or container, or train alone");
  AddSettings(command, job::ViewOf(task->job, &task->flags.devices, &task->flags));
  AddPrintPreset(command);
  command.Examples(
      "  passel task --preset=mnist-replica --job_name=worker --task_index=0\n"
      "  passel task --config=job.yaml --job_name=ps --task_index=0");
  command.OnRun([task, command, start_ns] { return TaskCommand(*task, command, start_ns); });
}

}  // namespace passel
