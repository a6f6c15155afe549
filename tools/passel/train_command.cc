// `passel train` and `passel launch`: a whole job on this host with one command.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "base/nvtx.h"
#include "job/exit_code.h"
#include "job/job_config.h"
#include "job/launch_setup.h"
#include "job/placement_table.h"
#include "job/train_job.h"
#include "job/train_settings.h"
#include "tools/passel/command_flags.h"
#include "tools/passel/commands.h"
#include "tools/passel/download_only.h"
#include "tools/passel/flags.h"
#include "tools/passel/preset_flags.h"
#include "tools/passel/train_command.h"

namespace passel {
namespace {

int Fail(const Status& status) {
  LogError("{}", status.message());
  return ExitCodeFor(status);
}

// "ps=1" "worker=4"
Status ReadRoles(TrainFlags* flags) {
  constexpr int kNotGiven = -1;
  flags->ps = flags->workers = kNotGiven;
  for (const std::string& role : flags->roles) {
    const std::size_t equals = role.find('=');
    const std::string name = role.substr(0, equals);
    int count = -1;
    if (equals != std::string::npos) {
      const char* end = role.data() + role.size();
      const auto [stop, error] = std::from_chars(role.data() + equals + 1, end, count);
      if (error != std::errc() || stop != end) count = -1;
    }
    if (name == "evaluator" && (count == 0 || count == 1)) {
      flags->evaluator = count == 1;
      continue;
    }
    if (count < 0 || (name != "ps" && name != "worker")) {
      return InvalidArgument(
          fmt::format("\"{}\" is not ps=COUNT, worker=COUNT or evaluator=0 or 1: for example  "
                      "passel launch ps=1 worker=4",
                      role));
    }
    int& target = name == "ps" ? flags->ps : flags->workers;
    if (target != kNotGiven) {
      return InvalidArgument(fmt::format("{}=COUNT is given twice: leave one away", name));
    }
    target = count;
    if (name == "worker") flags->workers_given = true;
  }
  flags->ps = std::max(flags->ps, 0);
  flags->workers = std::max(flags->workers, 0);
  return {};
}

void AddCommonFlags(CLI::App& command, TrainFlags* flags) {
  command.add_option("--config", flags->config, "YAML or JSON file with values for these flags")
      ->group("Job");
  command
      .add_option("--job_id", flags->job_id,
                  "Name of the job for passel ctl; default job-<process id>")
      ->group("Job");
  command
      .add_option("--max_restarts", flags->max_restarts,
                  "How often a worker that died is started again (a ps always is)")
      ->group("Job")
      ->capture_default_str();
  command
      .add_option("--grace", flags->grace,
                  "Seconds that tasks get to end after Ctrl-C before they are killed")
      ->group("Job")
      ->capture_default_str();
  command
      .add_flag("--print_placement", flags->print_placement,
                "Print on which ps each variable would be, and end")
      ->group("Job");
  command
      .add_flag("--evaluator", flags->evaluator,
                "One more process evaluates the values on the test images while they are trained")
      ->group("Job");
  command
      .add_option("--save", flags->save,
                  "Write the trained variables to this .safetensors file, after Ctrl-C too")
      ->group("Job");
  command
      .add_option("--report", flags->report,
                  "Write the results as JSON to this file; -: to standard output, and everything "
                  "else to standard error")
      ->group("Job");
  AddDeviceFlags(command, &flags->devices);
  AddLaunchFlags(command, &flags->launch);
  AddPresetFlags(command, &flags->preset);
  AddJobFlags(command, &flags->job);
}

// The file's values are in the options before anything looks at them.
int TrainByFile(TrainFlags& flags, CLI::App& command) {
  if (Status status = ApplyConfigFile(flags.config, command); !status.ok()) return Fail(status);
  flags.devices.num_gpus_given = command.get_option("--num_gpus")->count() > 0;
  const CLI::Option* const workers = command.get_option_no_throw("--workers");
  if (workers != nullptr && workers->count() > 0) flags.workers_given = true;
  const auto from_preset = ApplyPreset(command, flags.preset);
  if (!from_preset.ok()) return Fail(from_preset.status());
  NotePresetDir(flags.preset, *from_preset, &flags.job.source);
  flags.gpu_per_worker = WantsGpuPerWorker(flags.preset);
  if (from_preset->contains("num_gpus")) flags.devices.num_gpus_origin = "preset " + flags.preset;
  for (const char* name : {"TF_CONFIG", "PS_HOSTS", "WORKER_HOSTS", "PS_KEY", "WORKER_KEY"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      LogWarning("{} is not used: passel {} starts its own tasks; passel task reads it", name,
                 command.get_name());
    }
  }
  return Train(flags);
}

}  // namespace

int Train(TrainFlags& flags) {
  if (flags.job.download_only) return DownloadOnlyCommand(flags.job.source);
  const Result<JobConfig> config = CheckTrainSettings(&flags);
  if (!config.ok()) return Fail(config.status());
  nvtx::WarnIfMissing();
  nvtx::NameThread(flags.ps == 0 ? "worker/0" : "supervisor");
  if (flags.print_placement) return PrintPlacement(flags.job.source, *config, flags.ps);
  const Result<LaunchSetup> setup = SetUpLaunch(flags, *config);
  if (!setup.ok()) return Fail(setup.status());
  flags.workers = setup->workers;
  if (flags.launch.dry_run) {
    fmt::print("{}", DescribeSetup(*setup));
    return kExitDone;
  }
  ::signal(SIGPIPE, SIG_IGN);  // training goes on without readers of its output
  LogSetup(*setup);
  if (flags.devices.log_device_placement && flags.ps == 0) {
    LogInfo("every variable, forward and backward pass: this process, cpu:0");
  }
  const Result<JobReport> report = RunJob(flags, *config, *setup, g_program_start_ns);
  return report.ok() ? report->exit_code : Fail(report.status());
}

int PrintPlacement(const SourceFlags& source, const JobConfig& config, int ps) {
  const Result<std::string> table = PlacementTable(source, config, ps);
  if (!table.ok()) return Fail(table.status());
  fmt::print("{}", *table);
  std::fflush(stdout);
  return kExitDone;
}

void AddTrainCommand(CLI::App& app, Run* run) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command =
      app.add_subcommand("train", "Train on this host: ps, workers and all, with one command");
  command
      ->add_option("--ps", flags->ps, "ps tasks; 0: one process without a ps, which is one worker")
      ->group("Job")
      ->capture_default_str();
  command->add_option("--workers", flags->workers, "Worker tasks")
      ->group("Job")
      ->capture_default_str();
  AddCommonFlags(*command, flags.get());
  command->callback(
      [flags, run, command] { *run = [flags, command] { return TrainByFile(*flags, *command); }; });
}

void AddLaunchCommand(CLI::App& app, Run* run) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand(
      "launch", "The same with explicit roles: passel launch ps=2 worker=4 [flags of train]");
  command->add_option("roles", flags->roles, "ps=COUNT worker=COUNT [evaluator=1]")
      ->required()
      ->group("Job");
  AddCommonFlags(*command, flags.get());
  command->callback([flags, run, command] {
    *run = [flags, command] {
      if (Status status = ReadRoles(flags.get()); !status.ok()) return Fail(status);
      return TrainByFile(*flags, *command);
    };
  });
}

}  // namespace passel
