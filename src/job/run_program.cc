#include "job/run_program.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/namespaces.h"
#include "base/output.h"
#include "base/subprocess.h"
#include "cluster/text.h"
#include "job/exit_code.h"
#include "job/progress.h"
#include "job/signals.h"
#include "job/supervisor.h"
#include "optim/optimizer.h"
#include "store/variable_table.h"

namespace passel::job {
namespace {

constexpr std::chrono::seconds kSummaryPatience{5};

bool CanRun(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

// As a shell finds it.
Status FindProgram(std::string* name) {
  if (name->find('/') != std::string::npos) {
    if (CanRun(*name)) return {};
    return InvalidArgument(fmt::format(
        "{} is no program that can be run: name one, as in  passel run -- python train.py",
        Quoted(*name)));
  }
  const char* const value = std::getenv("PATH");
  for (std::string_view folders = value == nullptr ? "/usr/bin:/bin" : value; !folders.empty();) {
    const std::string_view folder = folders.substr(0, folders.find(':'));
    folders.remove_prefix(std::min(folders.size(), folder.size() + 1));
    const std::string path = fmt::format("{}/{}", folder.empty() ? "." : folder, *name);
    if (!CanRun(path)) continue;
    *name = path;
    return {};
  }
  return InvalidArgument(
      fmt::format("there is no program {} in PATH: name one, as in  passel run -- python train.py",
                  Quoted(*name)));
}

Status MakeFolder(const std::string& folder) {
  if (folder.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return InvalidArgument(fmt::format("--output_dir {} is no folder that can be written: {}",
                                     Quoted(folder),
                                     error ? error.message() : std::strerror(errno)));
}

void TakeOutcome(const JobOutcome& outcome, const Supervisor& supervisor, JobReport* report) {
  report->exit_code = outcome.exit_code;
  report->interrupted = outcome.interrupted;
  report->pinned = outcome.pinned;
  report->lives = outcome.lives;
  report->worker_exits = outcome.worker_exits;
  report->notes = outcome.notes;
  const std::vector<const shm::Arena*> arenas = supervisor.arenas();
  if (arenas.empty()) return;
  report->TakeStatus(ReadJobStatus(arenas[0]->memory()));
  report->optimizer = OptimizerName(arenas[0]->plan().optimizer.kind);
  // What the program said beats the command.
  const std::vector<PastMode>& modes = report->status.modes;
  if (!modes.empty()) report->mode = modes.front().setting.ToString();
}

}  // namespace

Result<LaunchSetup> PrepareProgram(TrainSettings* settings, JobConfig* config,
                                   ProgramToRun* program) {
  if (program->command.empty()) {
    return InvalidArgument(
        "there is no program to run: write it behind a lone --, as in  passel run --workers 4 -- "
        "python train.py");
  }
  const bool on_gpus = !settings->launch.gpus.empty();
  settings->of_program = true;
  settings->devices.device = on_gpus ? "auto" : "cpu";  // without --gpus it chooses by itself
  if (settings->ps < 1 || settings->ps > kMaxShards) {
    return InvalidArgument(
        fmt::format("passel run starts 1 to {} ps, not {}: use, for example, "
                    "--ps 1, or start the program without passel run",
                    kMaxShards, settings->ps));
  }
  program->cluster.job_id = settings->job_id;
  program->cluster.grace = settings->grace;
  PASSEL_ASSIGN_OR_RETURN(program->part,
                          FindClusterPart(program->cluster, settings->job, program->counts_given));
  if (program->part) {
    // The plan has places for one of each at least.
    settings->ps = std::max(1, program->part->Count(true));
    settings->workers = std::max(1, program->part->Count(false));
    settings->workers_given = true;
  }
  PASSEL_ASSIGN_OR_RETURN(*config, CheckTrainSettings(settings));
  PASSEL_RETURN_IF_ERROR(FindProgram(&program->command.front()));
  config->worker.train_steps = kNoStepLimit;  // the program knows when to end
  config->towers = on_gpus ? 1
                           : std::max(1, static_cast<int>(UsableCpus().size()) /
                                             std::max(1, settings->MaxWorkers()));
  PASSEL_RETURN_IF_ERROR(MakeFolder(settings->output_dir));
  PASSEL_ASSIGN_OR_RETURN(LaunchSetup setup, SetUpLaunch(*settings, *config));
  settings->workers = setup.workers;
  return setup;
}

Result<JobReport> RunProgram(const TrainSettings& settings, const JobConfig& config,
                             const LaunchSetup& setup, const ProgramToRun& program,
                             std::int64_t program_start_ns) {
  PASSEL_RETURN_IF_ERROR(CheckClocksOfChildren());
  PASSEL_ASSIGN_OR_RETURN(SignalEvents signals, SignalEvents::Create());
  JobReport report;
  report.program_start_ns = program_start_ns;
  report.run = DescribeRun(settings);
  report.job_id = settings.job_id.empty() ? fmt::format("job-{}", ::getpid()) : settings.job_id;
  report.mode = config.mode.traits().name;
  report.ps = settings.ps;
  if (program.part) {
    report.job_id = program.part->task.job_id;
    report.ps = program.part->task.spec.num_tasks("ps");
  }

  SupervisorOptions options;
  options.job_id = report.job_id;
  options.ps = settings.ps;
  if (program.part) options.part = &*program.part;
  options.workers = settings.workers;
  options.max_workers = settings.MaxWorkers();
  options.output_dir = settings.output_dir;
  options.plan = setup.plan;
  options.max_restarts = settings.max_restarts;
  options.restart_window = settings.restart_window;
  options.grace = settings.grace;
  options.program_start_ns = program_start_ns;
  options.program = program.command;
  options.program_settings = program.settings;
  Progress progress(kNoStepLimit, kNoStepLimit, /*workers_evaluate=*/true);
  Supervisor supervisor(options, settings.job, config, nullptr, signals);
  if (program.part) {
    for (const std::string& warning : program.part->warnings) LogWarning("{}", warning);
    std::string here;
    for (const TaskId& id : program.part->tasks) {
      here += (here.empty() ? "" : ", ") + id.ToString();
    }
    LogInfo("job {}: of {} ps and {} workers on this host: {}: {}", report.job_id, report.ps,
            program.part->task.NumTrainers(), here, program.command.front());
  } else {
    LogInfo("job {}: {} ps, {} workers: {}", report.job_id, settings.ps, settings.workers,
            program.command.front());
  }
  LogSetup(setup);
  if (setup.num_gpus > 0) {
    LogInfo("each worker sees its GPU alone, as device 0 (CUDA_VISIBLE_DEVICES)");
  }
  PASSEL_RETURN_IF_ERROR(supervisor.Start());
  const JobOutcome outcome = supervisor.Run(progress);
  progress.Finish();
  TakeOutcome(outcome, supervisor, &report);
  LearningCurve curve = progress.curve();
  curve.Add(report.status, LastStepNs(report.status));
  report.curve = curve.points();
  report.seconds = 1e-9 * static_cast<double>(MonotonicNs() - program_start_ns);
  // Standard output is the program's.
  Write(Stream::kErr, Summary(report));
  FlushOutput(Stream::kErr, outcome.end_by ? std::chrono::nanoseconds(std::chrono::seconds(1))
                                           : std::chrono::nanoseconds(kSummaryPatience));
  if (!settings.report.empty()) {
    if (const Status written = WriteReport(settings.report, report); !written.ok()) {
      LogError("{}", written.message());
      if (report.exit_code == kExitDone) report.exit_code = kExitFailed;
    }
  }
  return report;
}

}  // namespace passel::job
