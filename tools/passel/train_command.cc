// `passel train` and `passel launch`: a whole job on this host with one command.

#include <fmt/core.h>

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

// "ps=1" "worker=4". A chief is one more worker: worker 0, who has its duties.
Status ReadRoles(job::TrainSettings* flags) {
  constexpr int kNotGiven = -1;
  flags->ps = flags->workers = kNotGiven;
  int chief = kNotGiven;
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
    const bool is_chief = name == "chief" && count <= 1;
    if (count < 0 || (name != "ps" && name != "worker" && !is_chief)) {
      return InvalidArgument(fmt::format(
          "\"{}\" is not ps=COUNT, worker=COUNT, chief=0 or 1, or evaluator=0 or 1: for "
          "example  passel launch ps=1 worker=4",
          role));
    }
    int& target = name == "ps" ? flags->ps : is_chief ? chief : flags->workers;
    if (target != kNotGiven) {
      return InvalidArgument(fmt::format("{}=COUNT is given twice: omit one", name));
    }
    target = count;
    if (name != "ps") flags->workers_given = true;
  }
  flags->ps = std::max(flags->ps, 0);
  flags->workers = std::max(flags->workers, 0);
  if (chief == 1) {
    ++flags->workers;
    LogInfo("chief=1: worker/0 is the chief; it trains like the others, so that there are {}",
            flags->workers);
  }
  return {};
}

// The file's values are in the options before anything looks at them.
int TrainByFile(job::TrainSettings& flags, Command command, std::int64_t start_ns) {
  if (Status status = ApplyConfigFile(flags.config, command); !status.ok())
    return FinishCommand(status);
  flags.devices.num_gpus_given = command.Given("--num_gpus");
  if (command.Given("--workers")) flags.workers_given = true;
  const auto from_preset = ApplyPreset(command, flags.preset);
  if (!from_preset.ok()) return FinishCommand(from_preset.status());
  NotePresetDir(flags.preset, *from_preset, &flags.job.source);
  flags.gpu_per_worker = WantsGpuPerWorker(flags.preset);
  NotePresetDevices(flags.preset, *from_preset, &flags.devices);
  FollowProgram(flags.preset, &flags.job);
  for (const char* name : {"TF_CONFIG", "PS_HOSTS", "WORKER_HOSTS", "PS_KEY", "WORKER_KEY"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      LogWarning("{} is not used: passel {} starts its own tasks; passel task reads it", name,
                 command.name());
    }
  }
  return Train(flags, start_ns);
}

}  // namespace

int Train(job::TrainSettings& flags, std::int64_t start_ns) {
  if (flags.job.download_only) return DownloadOnlyCommand(flags.job.source);
  const Result<job::JobConfig> config = job::CheckTrainSettings(&flags);
  if (!config.ok()) return FinishCommand(config.status());
  nvtx::WarnIfMissing();
  nvtx::NameThread(flags.ps == 0 ? "worker/0" : "supervisor");
  if (flags.print_placement) return PrintPlacement(flags.job.source, *config, flags.ps);
  const Result<job::LaunchSetup> setup = job::SetUpLaunch(flags, *config);
  if (!setup.ok()) return FinishCommand(setup.status());
  flags.workers = setup->workers;
  if (flags.launch.dry_run) {
    fmt::print("{}", job::DescribeSetup(*setup));
    return job::kExitDone;
  }
  ::signal(SIGPIPE, SIG_IGN);  // training goes on without readers of its output
  job::LogSetup(*setup);
  if (flags.devices.log_device_placement && flags.ps == 0) {
    LogInfo("every variable, forward and backward pass: this process, cpu:0");
  }
  const Result<job::JobReport> report = job::RunJob(flags, *config, *setup, start_ns);
  return report.ok() ? report->exit_code : FinishCommand(report.status());
}

int PrintPlacement(const job::SourceSettings& source, const job::JobConfig& config, int ps) {
  const Result<std::string> table = job::PlacementTable(source, config, ps);
  if (!table.ok()) return FinishCommand(table.status());
  fmt::print("{}", *table);
  std::fflush(stdout);
  return job::kExitDone;
}

void AddTrainCommand(Command& program, std::int64_t start_ns) {
  auto flags = std::make_shared<job::TrainSettings>();
  Command command =
      program.AddCommand("train", "Train on this host: ps, workers and all, with one command");
  AddSettings(command, job::ViewOf(*flags));
  AddPrintPreset(command);
  command.Examples(
      "  passel train --workers=4 --mode=ssp --save=model.safetensors\n"
      "  passel train --preset=dist-mnist --sync_replicas");
  command.OnRun([flags, command, start_ns] { return TrainByFile(*flags, command, start_ns); });
}

void AddLaunchCommand(Command& program, std::int64_t start_ns) {
  auto flags = std::make_shared<job::TrainSettings>();
  Command command = program.AddCommand(
      "launch", "The same with explicit roles: passel launch ps=2 worker=4 [flags of train]");
  command.Add("roles", &flags->roles, "ps=COUNT worker=COUNT [chief=1] [evaluator=1]")
      .Required()
      .Group("Job");
  AddSettings(command, job::ViewOf(*flags));
  AddPrintPreset(command);
  command.Examples(
      "  passel launch ps=2 worker=4 --mode=barrier\n"
      "  passel launch ps=1 worker=2 evaluator=1 --preset=k8s-adagrad");
  command.OnRun([flags, command, start_ns] {
    if (Status status = ReadRoles(flags.get()); !status.ok()) return FinishCommand(status);
    return TrainByFile(*flags, command, start_ns);
  });
}

}  // namespace passel
