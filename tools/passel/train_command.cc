// `passel train` and `passel launch`: a whole job on this host with one command.

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "base/namespaces.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "cluster/cluster_spec.h"
#include "compute/cpu_backend.h"
#include "data/locate.h"
#include "job/conclusion.h"
#include "job/data_settings.h"
#include "job/devices.h"
#include "job/exit_code.h"
#include "job/flag_checks.h"
#include "job/job_config.h"
#include "job/launch_setup.h"
#include "job/memory_need.h"
#include "job/output_path.h"
#include "job/placement_table.h"
#include "job/progress.h"
#include "job/report.h"
#include "job/result_output.h"
#include "job/shared_data.h"
#include "job/single_process.h"
#include "job/supervisor.h"
#include "job/train_settings.h"
#include "tools/passel/command_flags.h"
#include "tools/passel/commands.h"
#include "tools/passel/download_only.h"
#include "tools/passel/flags.h"
#include "tools/passel/preset_flags.h"

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

Status CheckTrainFlags(const TrainFlags& f) {
  // As `launch` and `train` spell them.
  const bool roles = !f.roles.empty();
  const char* const ps = roles ? "ps=" : "--ps ";
  const char* const workers = roles ? "worker=" : "--workers ";
  if (f.workers < 1 || f.workers > kMaxWorkers) {
    return InvalidArgument(fmt::format("a job has 1 to {} workers, not {}: use, for example, {}2",
                                       kMaxWorkers, f.workers, workers));
  }
  if (f.ps < 0 || f.ps > kMaxShards) {
    return InvalidArgument(
        fmt::format("a job has 0 to {} ps, not {}: use, for example, {}1", kMaxShards, f.ps, ps));
  }
  if (f.ps == 0 && f.workers != 1) {
    return InvalidArgument(fmt::format("without a ps there is one worker, not {}: use {}1 or {}1",
                                       f.workers, ps, workers));
  }
  if (f.ps == 0 && f.evaluator) {
    return InvalidArgument("--evaluator follows the values on a ps, and there is none: use --ps 1");
  }
  PASSEL_RETURN_IF_ERROR(CheckRange("--max_restarts", f.max_restarts, 0, 1000));
  PASSEL_RETURN_IF_ERROR(CheckRange("--grace", f.grace, 0.1, 3600, f.job.typed, " s"));
  // Now, not after hours of training.
  if (!f.save.empty()) PASSEL_RETURN_IF_ERROR(CheckOutputPath("--save", f.save));
  if (!f.report.empty()) PASSEL_RETURN_IF_ERROR(PrepareResult("--report", f.report));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--report", f.report, "--save", f.save));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--report", f.report, "--config", f.config));
  PASSEL_RETURN_IF_ERROR(CheckDifferentFiles("--save", f.save, "--config", f.config));
  return f.job_id.empty() ? Status() : ValidateJobId(f.job_id);
}

// Of computations and of variables.
Status CheckPlaces(const TrainFlags& f, const JobConfig& config) {
  PASSEL_RETURN_IF_ERROR(
      CheckJobDevices(f.devices, f.job.typed, f.workers, WantsGpuPerWorker(f.preset)));
  return CheckPins(config.model, std::max(1, f.ps), config.placement);
}

Result<DataLocation> FindData(const JobFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(DataLocation location, Locate(flags.source));
  if (location.origin == DataOrigin::kGenerated) {
    LogWarning("{}", location.why);
  } else {
    LogInfo("{}", location.why);
  }
  return location;
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
  // Before the log file is made.
  const std::string& log = flags.job.log_file;
  for (const Status& status : {CheckDifferentFiles("--log_file", log, "--save", flags.save),
                               CheckDifferentFiles("--log_file", log, "--report", flags.report)}) {
    if (!status.ok()) return Fail(status);
  }
  if (flags.job.download_only) return DownloadOnlyCommand(flags.job.source);
  Result<JobConfig> config = CheckJobFlags(flags.job);
  if (!config.ok()) return Fail(config.status());
  // Their number follows from the GPUs, or it is one process alone.
  if ((!flags.launch.gpus.empty() || flags.ps == 0) && !flags.workers_given) flags.workers = 1;
  if (Status status = CheckTrainFlags(flags); !status.ok()) return Fail(status);
  if (Status status = CheckPlaces(flags, *config); !status.ok()) return Fail(status);
  nvtx::WarnIfMissing();
  nvtx::NameThread(flags.ps == 0 ? "worker/0" : "supervisor");
  if (flags.print_placement) {
    const Status printed = PrintPlacement(flags.job.source, *config, flags.ps);
    return printed.ok() ? kExitDone : Fail(printed);
  }
  const Result<LaunchSetup> setup = SetUpLaunch(flags, *config, WantsGpuPerWorker(flags.preset));
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
  const Result<DataOptions> data_options =
      MakeDataOptions(flags.job.source, flags.job.csv_train_limit, flags.job.csv_test_limit);
  if (!data_options.ok()) return Fail(data_options.status());
  Result<DataLocation> location = FindData(flags.job);
  if (!location.ok()) return Fail(location.status());
  const Result<std::string> data_key = DataKey(location->dir, *data_options);
  if (!data_key.ok()) return Fail(data_key.status());
  Result<SharedData> data = SharedData::Load(location->dir, *data_options);
  if (!data.ok()) return Fail(data.status());
  if (Status status = FitToData(data->data(), flags.workers, &*config); !status.ok())
    return Fail(status);
  const Result<StorePlan> plan = MakePlan(*config, std::max(1, flags.ps), flags.workers);
  if (!plan.ok()) return Fail(plan.status());
  const Status fits = CheckMemory(*plan, *config, {flags.ps, flags.workers, flags.evaluator});
  if (!fits.ok()) return Fail(fits);
  const Result<ModelLayout> layout = ModelLayout::Make(config->model, plan->variables);
  if (!layout.ok()) return Fail(layout.status());

  const Status clocks = CheckClocksOfChildren();
  if (!clocks.ok() && flags.ps > 0) return Fail(clocks);
  // The last evaluation is ours: what it lacks is said before hours of training.
  if (const auto backend = CreateCpuBackend(); !backend.ok()) return Fail(backend.status());
  Result<SignalEvents> signals = SignalEvents::Create();
  if (!signals.ok()) return Fail(signals.status());
  JobReport report;
  report.program_start_ns = g_program_start_ns;
  report.job_id = flags.job_id.empty() ? fmt::format("job-{}", ::getpid()) : flags.job_id;
  report.mode = ModeName(config->mode);
  report.push_every = config->worker.push_every;
  report.model = flags.job.model;
  report.optimizer = OptimizerName(config->optimizer.kind);
  report.data = location->dir;
  report.ps = flags.ps;
  const Result<DataSplit> split = SplitData(*config, data->data());
  if (!split.ok()) return Fail(split.status());
  const std::int64_t local_steps = TotalLocalSteps(*config, *split, flags.workers);
  Progress progress(config->worker.train_steps, local_steps, config->log_style != LogStyle::kNone);
  const auto conclude = [&](ParameterParts values) {
    // Who interrupted a job that had made all its steps meant what came after them.
    const bool all_steps = report.status.global_step >= config->worker.train_steps ||
                           report.status.local_steps >= static_cast<std::uint64_t>(local_steps);
    const Conclusion conclusion{*config,
                                data->data(),
                                values,
                                flags.save,
                                flags.report,
                                flags.evaluator,
                                !(report.interrupted && all_steps)};
    return Conclude(conclusion, *signals, progress, &report);
  };
  std::vector<std::vector<RowPart>> parts;
  const std::string about_data =
      ToJson(DescribeData(location->dir, *data_options, *data_key, *config));
  if (flags.ps == 0) {
    SingleProcessJob job(*config, *plan, *layout, *data, about_data, *signals);
    const Status status = job.Run(progress, &report);
    progress.Finish();
    if (!status.ok()) return Fail(status);
    const std::vector<const float*> values = job.values();
    layout->Bind(values, &parts);
    return conclude(parts);
  }

  SupervisorOptions options;
  options.job_id = report.job_id;
  options.ps = flags.ps;
  options.workers = flags.workers;
  options.plan = setup->plan;
  options.gpu_or_cpu = setup->may_fall_back;
  options.max_restarts = flags.max_restarts;
  options.grace = flags.grace;
  options.evaluator = flags.evaluator;
  options.data = about_data;
  options.devices = flags.devices;
  // Worker i computes on the one at place i modulo their number.
  if (setup->num_gpus > 0) options.devices.num_gpus = setup->num_gpus;
  Supervisor supervisor(options, flags.job, *config, *data, *signals);
  LogInfo("job {}: {} ps, {} workers, mode {}, {} parameters", report.job_id, flags.ps,
          flags.workers, report.mode, plan->variables.TotalElements());
  if (Status status = supervisor.Start(); !status.ok()) return Fail(status);
  const JobOutcome outcome = supervisor.Run(progress);
  progress.Finish();
  report.exit_code = outcome.exit_code;
  report.interrupted = outcome.interrupted;
  report.pinned = outcome.pinned;
  report.ps_restarts = outcome.ps_restarts;
  report.worker_exits = outcome.worker_exits;
  report.notes = outcome.notes;
  const std::vector<const shm::Arena*> arenas = supervisor.arenas();
  if (!arenas.empty()) {
    report.status = job::ReadJobStatus(arenas[0]->memory());
    std::int64_t first = 0;
    for (const job::WorkerStatus& w : report.status.workers) {
      if (w.first_step_ns != 0 && (first == 0 || w.first_step_ns < first)) first = w.first_step_ns;
    }
    if (first != 0) report.startup_seconds = 1e-9 * static_cast<double>(first - g_program_start_ns);
    std::vector<const float*> values;
    for (const shm::Arena* arena : arenas) values.push_back(arena->memory().values);
    if (report.status.initialized) layout->Bind(values, &parts);
    if (config->on_device && report.status.initialized) NoteShadow(arenas[0]->memory(), &report);
  }
  return conclude(parts);
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
