// `passel run`: a program of the user as the workers of a job, or what is on this host of one on
// several.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <string_view>

#include "job/exit_code.h"
#include "job/program_settings.h"
#include "job/run_program.h"
#include "tools/passel/commands.h"
#include "tools/passel/flags.h"

namespace passel {
namespace {

// Beside those that mean something to the program itself.
constexpr auto kOfCommand = std::to_array<std::string_view>(
    {"ps", "workers", "max_workers", "job_id", "max_restarts", "restart_window", "grace", "report",
     "output_dir", "gpus", "workers_per_gpu", "bind", "dry_run"});
// Where tasks are: the program hears it of the supervisor.
constexpr auto kOfCluster =
    std::to_array<std::string_view>({"job_name", "task_index", "ps_hosts", "worker_hosts",
                                     "token_file", "insecure_no_auth", "lease"});
// Of the supervisor, or not offered here.
constexpr auto kNotToProgram = std::to_array<std::string_view>({"max_workers", "job_id"});

bool IsOfCommand(std::string_view name) {
  return std::ranges::find(kOfCommand, name) != kOfCommand.end();
}
bool IsOfCluster(std::string_view name) {
  return std::ranges::find(kOfCluster, name) != kOfCluster.end();
}
bool IsForProgram(std::string_view name) {
  return job::MeansToProgram(name) && !IsOfCluster(name) &&
         std::ranges::find(kNotToProgram, name) == kNotToProgram.end();
}

struct RunFlags {
  job::TrainSettings settings;
  job::ProgramToRun program;
};

int RunPrograms(RunFlags& flags, const Command& command, std::int64_t start_ns) {
  const job::SettingsView view = job::ViewOf(flags.settings);
  for (const job::SettingRow& row : job::SettingsTable()) {
    if (!IsForProgram(row.name) || !command.Given("--" + row.name)) continue;
    const std::string text = job::TextOf(row.value(view));
    if (row.value(view).index() != 0) {
      flags.program.settings.push_back(fmt::format("{}={}", row.name, text));
    }
  }
  for (const char* count : {"--ps", "--workers", "--max_workers"}) {
    flags.program.counts_given |= command.Given(count);
  }
  flags.settings.workers_given = command.Given("--workers");
  job::JobConfig config;
  const Result<job::LaunchSetup> setup =
      job::PrepareProgram(&flags.settings, &config, &flags.program);
  if (!setup.ok()) return FinishCommand(setup.status());
  if (flags.settings.launch.dry_run) {
    fmt::print("{}", job::DescribeSetup(*setup));
    return job::kExitDone;
  }
  ::signal(SIGPIPE, SIG_IGN);  // training goes on without readers of its output
  const Result<job::JobReport> report =
      job::RunProgram(flags.settings, config, *setup, flags.program, start_ns);
  return report.ok() ? report->exit_code : FinishCommand(report.status());
}

}  // namespace

void AddRunCommand(Command& program, std::span<char* const> behind, std::int64_t start_ns) {
  auto flags = std::make_shared<RunFlags>();
  flags->settings.max_restarts = 3;
  flags->program.command.assign(behind.begin(), behind.end());
  Command command = program.AddCommand(
      "run", "Your own program as the workers: passel run --workers 4 -- python train.py");
  job::SettingsView view = job::ViewOf(flags->settings);
  std::get<job::TaskSettings*>(view) = &flags->program.cluster;
  AddSettings(command, view, [of_job = job::ViewOf(flags->settings)](const job::SettingRow& row) {
    if (IsOfCluster(row.name)) return true;
    return (IsOfCommand(row.name) || IsForProgram(row.name)) && row.value(of_job).index() != 0 &&
           (row.traits.only == nullptr || row.traits.only == std::string_view("train") ||
            row.traits.only == std::string_view("run"));
  });
  command.Describe("--ps", "Number of ps tasks");
  command.Describe("--ps_hosts",
                   "host:port,... of all ps of a job on several hosts: the same command on each of "
                   "them starts the tasks of that host");
  command.Describe("--job_name",
                   "Start this one task of the lists: ps, worker, chief (or master). Default: all "
                   "whose addresses are of this host");
  command.Describe(
      "--gpus",
      "GPUs for the workers, one each: all, or a list of indices (0,2), MIG instances "
      "(0:1) and UUIDs, as passel topology shows them. Worker i sees the one at place i "
      "modulo their number, and no other. Without it nothing is said of GPUs");
  command.Examples(
      "  passel run --workers=4 -- python train.py --lr 0.1\n"
      "  passel run --workers=2 --mode=barrier -- ./my_program");
  command.OnRun([flags, command, start_ns] { return RunPrograms(*flags, command, start_ns); });
}

}  // namespace passel
