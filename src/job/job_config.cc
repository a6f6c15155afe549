#include "job/job_config.h"

#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "job/flag_checks.h"
#include "job/mode_settings.h"
#include "job/optimizer_settings.h"
#include "job/placement_settings.h"
#include "job/settings_table.h"

namespace passel::job {
namespace {

Status CheckTowers(const JobSettings& f) {
  if (f.towers > f.batch_size) {
    return InvalidArgument(
        fmt::format("--towers is at most the {} examples of a batch (--batch_size), not {}: use "
                    "fewer towers or a larger batch",
                    f.batch_size, f.towers));
  }
  if (f.towers > 1 && f.threads_per_worker > 1) {
    return InvalidArgument(fmt::format(
        "--threads_per_worker {} cannot be combined with --towers {}: towers are threads "
        "already; use --threads_per_worker 1",
        f.threads_per_worker, f.towers));
  }
  return {};
}

// Settings of workers on GPUs; a job that has none says so when it runs.
Status CheckGpuSettings(const JobSettings& f, JobConfig* config) {
  PASSEL_ASSIGN_OR_RETURN(config->math, Choose<MathMode>("--math", f.math,
                                                         {{"float32", MathMode::kFloat32},
                                                          {"tf32", MathMode::kTf32},
                                                          {"bfloat16", MathMode::kBfloat16}}));
  PASSEL_ASSIGN_OR_RETURN(config->on_device,
                          Choose<bool>("--arena", f.arena, {{"host", false}, {"device", true}}));
  if (!(f.shadow_interval >= 0.01 && f.shadow_interval <= 86400)) {
    return InvalidArgument(
        fmt::format("--shadow_interval must be from 0.01 to 86400 seconds, not {}: change it",
                    f.shadow_interval));
  }
  config->shadow_interval_ns = static_cast<std::int64_t>(f.shadow_interval * 1e9);
  StorePlan modes;
  modes.on_device = config->on_device;
  PASSEL_RETURN_IF_ERROR(modes.CheckMode(config->mode));
  for (const ScheduledMode& entry : config->mode_schedule) {
    PASSEL_RETURN_IF_ERROR(modes.CheckMode(entry.setting).WithContext("--mode_schedule"));
  }
  config->cuda_graphs = f.cuda_graphs;
  config->fused_update = f.fused_update;
  const int steps_ahead = f.steps_ahead.value_or(1);
  if (f.steps_ahead && !f.overlap) {
    return InvalidArgument(
        fmt::format("--steps_ahead {} says how many steps --overlap begins before a push, and it "
                    "is not given: add --overlap, or omit --steps_ahead",
                    steps_ahead));
  }
  config->steps_ahead = f.overlap ? steps_ahead : 0;
  if (config->steps_ahead > 0 && config->mode.traits().rounds) {
    return InvalidArgument(
        fmt::format("--overlap begins a step before the last gradient is applied, and in {} a step "
                    "needs all of them: omit it, or use --mode {}",
                    config->mode.traits().name, ModeNames(/*rounds=*/false)));
  }
  return {};
}

Status CheckStopRules(const JobSettings& f, WorkerOptions* worker) {
  const bool local_rule = f.epochs != 0 || f.local_steps != 0;
  const std::int64_t train_steps = f.train_steps.value_or(local_rule ? 0 : kDefaultTrainSteps);
  if (f.epochs != 0 && f.local_steps != 0) {
    return InvalidArgument(
        fmt::format("--epochs {} and --local_steps {} say twice how many local steps a worker "
                    "makes: omit one of them",
                    f.epochs, f.local_steps));
  }
  if (train_steps == 0 && !local_rule) {
    return InvalidArgument(
        "--train_steps 0 without --epochs and --local_steps never ends: give one of the three");
  }
  const auto limit = [](std::int64_t value) { return value == 0 ? kNoStepLimit : value; };
  worker->train_steps = limit(train_steps);
  worker->epochs = limit(f.epochs);
  worker->local_steps = limit(f.local_steps);
  return {};
}

// One that is missing is made later.
Status CheckOutputFolder(const char* flag, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::is_directory(path, ignored)) {
    return {};
  }
  return InvalidArgument(fmt::format("{} {} is not a folder: name one, or omit it", flag, path));
}

Status CheckEvaluationAndLog(const JobSettings& f, JobSettingsOf of, JobConfig* config) {
  PASSEL_ASSIGN_OR_RETURN(config->worker.evaluation_set,
                          Choose<EvaluationSet>("--worker_eval_set", f.worker_eval_set,
                                                {{"test", EvaluationSet::kTest},
                                                 {"validation", EvaluationSet::kValidation}}));
  if (config->worker.evaluation_set == EvaluationSet::kValidation && f.validation_size == 0) {
    return InvalidArgument(
        "--worker_eval_set validation has no images with --validation_size 0: give it a size");
  }
  config->worker.evaluation_steps = f.worker_eval_steps;
  const std::string style = !f.log_lines.empty()               ? f.log_lines
                            : of == JobSettingsOf::kTaskByHand ? "task"
                                                               : "none";
  PASSEL_ASSIGN_OR_RETURN(config->log_style, ParseLogStyle(style));
  // Whoever owns the job evaluates the last values: a worker only to tell of it.
  config->worker.evaluate_at_end = TellsOfFinalEvaluation(config->log_style);
  config->log_steps = f.log_step_count_steps;
  config->log_epochs = f.log_epochs;
  PASSEL_RETURN_IF_ERROR(CheckOutputFolder("--timeline_dir", f.timeline_dir));
  config->timeline_dir = f.timeline_dir;
  config->timeline_steps = f.timeline_steps;
  return {};
}

Status CheckSummaries(const JobSettings& f, const OptimizerConfig& optimizer,
                      SummaryOptions* summaries) {
  PASSEL_RETURN_IF_ERROR(CheckOutputFolder("--logs_dir", f.logs_dir));
  const auto time = [](double seconds) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  };
  summaries->folder = f.logs_dir;
  summaries->began_at = WallSeconds();  // the life of this process: a life before told of its own
  summaries->every_steps = f.summary_steps;
  summaries->interval = time(f.summary_secs);
  summaries->histogram_interval = time(f.histogram_secs);
  summaries->learning_rate = optimizer.learning_rate;
  summaries->places.optimizer = std::string(OptimizerName(optimizer.kind));
  return {};
}

}  // namespace

Status StartLog(const JobSettings& f) {
  LogLevel level;
  if (!ParseLogLevel(f.log_level, &level)) {
    return InvalidArgument(fmt::format(
        "--log_level {} is not known: use one of debug, info, warning, error", f.log_level));
  }
  LogFormat format;
  if (!ParseLogFormat(f.log_format, &format)) {
    return InvalidArgument(
        fmt::format("--log_format {} is not known: use text or json", f.log_format));
  }
  SetLogLevel(level);
  SetLogFormat(format);
  if (!f.log_file.empty()) {
    if (const Status opened = OpenLogFile(f.log_file); !opened.ok()) {
      return opened.WithContext("--log_file");
    }
  }
  return {};
}

Result<JobConfig> CheckJobSettings(const JobSettings& f, JobSettingsOf of) {
  JobSettings settings = f;  // the table speaks of settings that may be changed
  PASSEL_RETURN_IF_ERROR(CheckRanges(ViewOf(settings), f.typed));
  JobConfig config;
  PASSEL_ASSIGN_OR_RETURN(const ModelKind kind, ParseModelKind(f.model));
  config.model = DefaultModelConfig(kind);
  if (kind == ModelKind::kMlp) {
    PASSEL_ASSIGN_OR_RETURN(config.model.hidden, ParseHiddenUnits(f.hidden_units));
  } else if (f.hidden_units != kDefaultHiddenUnits) {  // which presets set for any model
    return InvalidArgument(
        fmt::format("--hidden_units {} has no meaning for --model {}: use --model mlp, or omit it",
                    f.hidden_units, f.model));
  }
  PASSEL_ASSIGN_OR_RETURN(config.model.loss, ParseLossReduction(f.loss));
  config.model.seed = f.seed;
  PASSEL_ASSIGN_OR_RETURN(config.optimizer, CheckOptimizer(f));
  PASSEL_RETURN_IF_ERROR(CheckModeSettings(f, &config));
  PASSEL_ASSIGN_OR_RETURN(config.placement, CheckPlacementSettings(f));
  config.train_examples = static_cast<std::uint64_t>(f.train_examples);
  PASSEL_RETURN_IF_ERROR(MakeLocateOptions(f.source).status());
  config.fake_data = f.source.fake_data;
  config.validation_size = f.validation_size;  // its limits depend on the data
  PASSEL_RETURN_IF_ERROR(CheckStopRules(f, &config.worker));
  config.worker.push_every = static_cast<int>(f.push_every);
  PASSEL_RETURN_IF_ERROR(CheckEvaluationAndLog(f, of, &config));
  PASSEL_RETURN_IF_ERROR(CheckSummaries(f, config.optimizer, &config.summaries));
  PASSEL_RETURN_IF_ERROR(CheckTowers(f));
  PASSEL_RETURN_IF_ERROR(CheckShare("--memory_fraction", f.memory_fraction, f.typed));
  WorkerOptions& w = config.worker;
  w.batch_size = static_cast<std::uint32_t>(f.batch_size);
  w.seed = f.seed;
  w.shard_data = f.shard_data;
  PASSEL_ASSIGN_OR_RETURN(
      w.pull, Choose<std::optional<PullMode>>(
                  "--pull", f.pull,
                  {{"auto", std::nullopt}, {"view", PullMode::kView}, {"copy", PullMode::kCopy}}));
  PASSEL_ASSIGN_OR_RETURN(
      w.on_nan,
      Choose<OnNan>("--on_nan", f.on_nan, {{"stop", OnNan::kStop}, {"skip", OnNan::kSkip}}));
  PASSEL_ASSIGN_OR_RETURN(w.sampler, Choose<Sampler>("--sampler", f.sampler,
                                                     {{"next_batch", Sampler::kNextBatch},
                                                      {"random", Sampler::kRandom}}));
  PASSEL_ASSIGN_OR_RETURN(config.huge_pages,
                          Choose<HugePages>("--huge_pages", f.huge_pages,
                                            {{"off", HugePages::kOff},
                                             {"transparent", HugePages::kTransparent},
                                             {"explicit", HugePages::kExplicit}}));
  config.memory_fraction = f.memory_fraction;
  config.threads_per_worker = f.threads_per_worker;
  config.towers = f.towers;
  PASSEL_RETURN_IF_ERROR(CheckGpuSettings(f, &config));
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
  PASSEL_ASSIGN_OR_RETURN(config.on_stall, Choose<OnStall>("--on_stall", f.on_stall,
                                                           {{"evict", OnStall::kEvict},
                                                            {"wait", OnStall::kWait},
                                                            {"fail", OnStall::kFail}}));
  config.stall_limit_ns = ns(f.stall_limit);
  config.start_wait_ns = ns(f.start_wait);
  config.ps_wait_ns = ns(f.ps_wait);
  config.spin_us = f.spin_us.value_or(-1);
  config.eval_interval_ns = ns(f.eval_interval);
  config.eval_steps = f.eval_steps;
  config.eval_consistent = f.eval_consistent;
  PASSEL_ASSIGN_OR_RETURN(config.checkpoints, CheckCheckpointSettings(f));
  // A round may wait for the start of a worker and for one that stalls.
  w.push_limit = std::chrono::nanoseconds(config.stall_limit_ns + config.start_wait_ns) +
                 std::chrono::minutes(1);
  return config;
}

Result<DataSplit> SplitData(const JobConfig& config, const Dataset& data) {
  return SplitSource(data, config.fake_data, config.validation_size, config.train_examples);
}

Status FitToData(const Dataset& data, int workers, JobConfig* config) {
  PASSEL_ASSIGN_OR_RETURN(const DataSplit split, SplitData(*config, data));
  config->examples = split.train.size();
  config->model.inputs = data.train().image_pixels;
  config->model.classes = data.num_classes();
  PASSEL_RETURN_IF_ERROR(config->model.Validate());
  if (split.train.size() == 0) {
    return InvalidArgument(fmt::format(
        "--validation_size {} leaves none of the {} training examples to train with: "
        "use, for example, --validation_size={}",
        config->validation_size, split.validation.size(), split.validation.size() / 10));
  }
  if (config->worker.batch_size > split.train.size()) {
    return InvalidArgument(
        fmt::format("--batch_size is at most the {} examples of the training set, not {}: lower it",
                    split.train.size(), config->worker.batch_size));
  }
  // The smallest shard counts: one worker that cannot draw a batch is too many.
  const std::size_t shard = split.train.size() / static_cast<std::size_t>(workers);
  if (config->worker.shard_data && config->worker.batch_size > shard) {
    return InvalidArgument(fmt::format(
        "--batch_size is at most the {} of {} training examples that each of {} workers has with "
        "--shard_data, not {}: lower it, use fewer workers, or omit --shard_data",
        shard, split.train.size(), workers, config->worker.batch_size));
  }
  return {};
}

std::int64_t TotalLocalSteps(const JobConfig& config, const DataSplit& data, int workers) {
  WorkerOptions options = config.worker;
  options.num_workers = workers;
  std::int64_t total = 0;
  for (int worker = 0; worker < workers; ++worker) {
    const std::int64_t limit = LocalStepLimit(options, data.train.size(), worker);
    if (limit > kNoStepLimit - total) return kNoStepLimit;
    total += limit;
  }
  return total;
}

LogLines MakeLogLines(const JobConfig& config, const TaskId& task, bool chief) {
  LogLineOptions options;
  options.style = config.log_style;
  options.task = task;
  options.chief = chief;
  options.steps = config.log_steps;
  options.epochs = config.log_epochs;
  options.train_steps = config.worker.train_steps;
  return LogLines(options,
                  [](std::string_view line) { Write(Stream::kOut, fmt::format("{}\n", line)); });
}

void TellOfJob(std::int64_t target, ShardState& lead) {
  std::int64_t none = 0;
  if (!lead.started_ns.compare_exchange_strong(none, MonotonicNs())) return;
  lead.target_step.store(target, std::memory_order_relaxed);
}

std::int64_t TargetOf(const JobConfig& config) {
  return config.worker.train_steps == kNoStepLimit ? 0 : config.worker.train_steps;
}

Status CheckSlowWorkers(const JobConfig& config, int workers) {
  for (const WorkerOptions::SlowWorker& slow : config.worker.slow_workers) {
    if (slow.index < workers) continue;
    return InvalidArgument(
        fmt::format("--slow_worker {0}:{1}ms: there is no worker/{0}, the job "
                    "has {2}: use an index below that",
                    slow.index, slow.delay.count(), workers));
  }
  return {};
}

Status CheckMayJoin(const JobConfig& config) {
  if (config.worker.shard_data) {
    return InvalidArgument(
        "--shard_data gives each worker a part of the examples for good, and --max_workers lets "
        "others join: omit one of them");
  }
  if (config.on_device) {
    return InvalidArgument(
        "--arena device is shared by the workers that a job begins with, and --max_workers lets "
        "others join: use --arena host, or omit --max_workers");
  }
  return {};
}

Result<StorePlan> MakePlan(const JobConfig& config, int shards, int workers, int most_workers) {
  PASSEL_ASSIGN_OR_RETURN(VariableTable variables,
                          PlaceModel(config.model, shards, config.placement));
  return MakePlan(config, std::move(variables), workers, most_workers);
}

Result<StorePlan> MakePlan(const JobConfig& config, VariableTable variables, int workers,
                           int most_workers) {
  StorePlan plan;
  plan.mode = config.mode.For(most_workers);
  plan.schedule = config.mode_schedule;
  PASSEL_RETURN_IF_ERROR(CheckSlowWorkers(config, most_workers));
  plan.optimizer = config.optimizer;
  plan.num_workers = most_workers;
  plan.spare_workers = most_workers - workers;
  plan.on_device = config.on_device;
  // One is pushed while the next ones are computed.
  plan.gradient_slots = std::max(config.steps_ahead, config.prefetch ? 1 : 0) + 1;
  plan.variables = std::move(variables);
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  return plan;
}

WaitOptions MakeWaitOptions(const JobConfig& config, int workers, int cores) {
  WaitOptions options;
  const double spin_us = config.spin_us >= 0                ? config.spin_us
                         : workers * config.towers <= cores ? 500
                                                            : 20;
  options.spin = std::chrono::nanoseconds(static_cast<std::int64_t>(spin_us * 1e3));
  options.stall_limit = std::chrono::nanoseconds(config.stall_limit_ns);
  options.on_stall = config.on_stall;
  options.eviction = Eviction::kKill;  // a worker is a process of its own
  options.start_wait = std::chrono::nanoseconds(config.start_wait_ns);
  return options;
}

}  // namespace passel::job
