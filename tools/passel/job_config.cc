#include "tools/passel/job_config.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdio>

#include "base/log.h"
#include "compute/cpu_backend.h"
#include "tools/passel/optimizer_flags.h"

namespace passel {
namespace {

// "fixed:4", "min_max:4" or "min_max:4:65536", "axis:BYTES" or "axis:BYTES:4", "none"
Result<Partitioner> ParsePartitioner(const std::string& text) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t colon = text.find(':', begin);
    words.push_back(text.substr(begin, colon - begin));
    if (colon == std::string::npos) break;
    begin = colon + 1;
  }
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 1; i < words.size(); ++i) {
    std::int64_t number = 0;
    const char* end = words[i].data() + words[i].size();
    const auto [stop, error] = std::from_chars(words[i].data(), end, number);
    if (error != std::errc() || stop != end || number < 1 || number > (std::int64_t{1} << 50)) {
      return InvalidArgument(
          fmt::format("--partitioner {}: \"{}\" is not a number from 1 to 2^50", text, words[i]));
    }
    numbers.push_back(number);
  }
  const auto part_count = [](std::int64_t n) {
    return static_cast<int>(std::min<std::int64_t>(n, 1'000'000));
  };
  if (words[0] == "none" && numbers.empty()) return Partitioner::None();
  if (words[0] == "fixed" && numbers.size() == 1) {
    return Partitioner::FixedSize(part_count(numbers[0]));
  }
  if (words[0] == "min_max" && numbers.size() == 1) {
    return Partitioner::MinMax(part_count(numbers[0]));
  }
  if (words[0] == "min_max" && numbers.size() == 2) {
    return Partitioner::MinMax(part_count(numbers[0]), numbers[1]);
  }
  if (words[0] == "axis" && numbers.size() == 1) return Partitioner::VariableAxisSize(numbers[0]);
  if (words[0] == "axis" && numbers.size() == 2) {
    return Partitioner::VariableAxisSize(numbers[0], part_count(numbers[1]));
  }
  return InvalidArgument(fmt::format(
      "--partitioner {} is not understood: use none, fixed:PARTS, min_max:MAX_PARTS[:MIN_BYTES] or "
      "axis:MAX_BYTES[:MAX_PARTS]",
      text));
}

Status CheckRange(const char* flag, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return InvalidArgument(fmt::format("{} is {} to {}, not {}: change it", flag, low, high, value));
}

// "1:20ms"
Result<WorkerOptions::SlowWorker> ParseSlowWorker(const std::string& text) {
  WorkerOptions::SlowWorker slow;
  const char* const end = text.data() + text.size();
  std::int64_t ms = 0;
  const auto [colon, bad_index] = std::from_chars(text.data(), end, slow.index);
  if (bad_index == std::errc() && slow.index >= 0 && colon != end && *colon == ':') {
    const auto [unit, bad_delay] = std::from_chars(colon + 1, end, ms);
    if (bad_delay == std::errc() && std::string(unit, end) == "ms" && ms >= 1 && ms <= 600'000) {
      slow.delay = std::chrono::milliseconds(ms);
      return slow;
    }
  }
  return InvalidArgument(fmt::format(
      "--slow_worker {} is not understood: use INDEX:DELAYms with a delay of 1 to 600000 "
      "milliseconds, e.g. 1:20ms",
      text));
}

Status CheckTowers(const JobFlags& f) {
  PASSEL_RETURN_IF_ERROR(CheckRange("--towers", f.towers, 1, kMaxTowers));
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

// "hid_w=/job:ps/task:1"
Result<PlacementOptions::Pin> ParsePin(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return InvalidArgument(fmt::format(
        "--pin_variable {} is not understood: use NAME=DEVICE, e.g. hid_w=/job:ps/task:1", text));
  }
  PlacementOptions::Pin pin;
  pin.variable = text.substr(0, equals);
  Result<Device> device = ParseDevice(text.substr(equals + 1));
  if (!device.ok()) return device.status().WithContext("--pin_variable " + pin.variable);
  pin.device = std::move(*device);
  return pin;
}

template <typename T>
Result<T> Choose(const char* flag, const std::string& value,
                 std::initializer_list<std::pair<const char*, T>> choices) {
  std::string names;
  for (const auto& [name, choice] : choices) {
    if (value == name) return choice;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return InvalidArgument(fmt::format("{} {} is not known: use one of {}", flag, value, names));
}

// "0:barrier,2000:replicas=3"
Result<std::vector<ScheduledMode>> ParseSchedule(const std::string& text) {
  std::vector<ScheduledMode> schedule;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view entry = std::string_view(text).substr(begin, comma - begin);
    begin = comma + 1;
    ScheduledMode& scheduled = schedule.emplace_back();
    const char* const end = entry.data() + entry.size();
    const auto [colon, error] = std::from_chars(entry.data(), end, scheduled.step);
    if (error != std::errc() || colon == end || *colon != ':' || scheduled.step < 0 ||
        scheduled.step > kMaxScheduledStep) {
      return InvalidArgument(
          fmt::format("--mode_schedule: \"{}\" is not understood: use STEP:MODE with a global step "
                      "of 0 to {}, e.g. 2000:hogwild",
                      entry, kMaxScheduledStep));
    }
    const Result<ModeSetting> setting =
        ParseModeSetting(std::string_view(colon + 1, static_cast<std::size_t>(end - colon - 1)));
    if (!setting.ok()) return setting.status().WithContext("--mode_schedule");
    scheduled.setting = *setting;
    if (schedule.size() > 1 && scheduled.step <= schedule[schedule.size() - 2].step) {
      return InvalidArgument(
          fmt::format("--mode_schedule names rising global steps, not {} after {}: sort them",
                      scheduled.step, schedule[schedule.size() - 2].step));
    }
  }
  return schedule;
}

// What it says of step 0 takes the place of --mode.
Status CheckSchedule(const JobFlags& f, JobConfig* config) {
  if (f.mode_schedule.empty()) return {};
  PASSEL_ASSIGN_OR_RETURN(config->mode_schedule, ParseSchedule(f.mode_schedule));
  if (config->mode_schedule.front().step == 0) {
    if (config->mode != Mode::kHogwild) {
      return InvalidArgument(fmt::format(
          "--mode {} and --mode_schedule {} both name the first mode: leave --mode away",
          ModeName(config->mode), f.mode_schedule));
    }
    const ModeSetting first = config->mode_schedule.front().setting;
    config->mode = first.mode;
    config->replicas_to_aggregate = first.replicas_to_aggregate;
    config->staleness_bound = first.staleness_bound;
    config->mode_schedule.erase(config->mode_schedule.begin());
  }
  if (config->mode_schedule.size() > static_cast<std::size_t>(kMaxScheduledModes)) {
    return InvalidArgument(fmt::format("--mode_schedule has at most {} changes of mode, not {}",
                                       kMaxScheduledModes, config->mode_schedule.size()));
  }
  return {};
}

Status CheckModeFlags(const JobFlags& f, JobConfig* config) {
  const auto check = [&](const char* flag, const std::optional<std::int64_t>& value, Mode mode,
                         int least, int most, int* out) -> Status {
    if (!value) return {};
    if (config->mode != mode) {
      return InvalidArgument(
          fmt::format("{} has no meaning for --mode {}: use --mode {}, or leave it away", flag,
                      ModeName(config->mode), ModeName(mode)));
    }
    PASSEL_RETURN_IF_ERROR(CheckRange(flag, static_cast<double>(*value), least, most));
    *out = static_cast<int>(*value);
    return {};
  };
  if (config->mode == Mode::kSsp) config->staleness_bound = kDefaultStalenessBound;
  PASSEL_RETURN_IF_ERROR(check("--replicas_to_aggregate", f.replicas_to_aggregate, Mode::kReplicas,
                               1, kMaxReplicasToAggregate, &config->replicas_to_aggregate));
  PASSEL_RETURN_IF_ERROR(check("--staleness_bound", f.staleness_bound, Mode::kSsp, 0,
                               kMaxStalenessBound, &config->staleness_bound));
  PASSEL_RETURN_IF_ERROR(CheckSchedule(f, config));
  for (const std::string& text : f.slow_worker) {
    PASSEL_ASSIGN_OR_RETURN(const WorkerOptions::SlowWorker slow, ParseSlowWorker(text));
    config->worker.slow_workers.push_back(slow);
  }
  return {};
}

}  // namespace

namespace {

Status CheckStopRules(const JobFlags& f, WorkerOptions* worker) {
  PASSEL_RETURN_IF_ERROR(CheckRange("--epochs", static_cast<double>(f.epochs), 0, 1e9));
  PASSEL_RETURN_IF_ERROR(CheckRange("--local_steps", static_cast<double>(f.local_steps), 0, 1e12));
  const bool local_rule = f.epochs != 0 || f.local_steps != 0;
  const std::int64_t train_steps = f.train_steps.value_or(local_rule ? 0 : kDefaultTrainSteps);
  PASSEL_RETURN_IF_ERROR(CheckRange("--train_steps", static_cast<double>(train_steps), 0, 1e12));
  if (f.epochs != 0 && f.local_steps != 0) {
    return InvalidArgument(
        fmt::format("--epochs {} and --local_steps {} say twice how many local steps a worker "
                    "makes: leave one of them away",
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

Status CheckEvaluationAndLog(const JobFlags& f, JobFlagsOf of, JobConfig* config) {
  PASSEL_ASSIGN_OR_RETURN(config->worker.evaluation_set,
                          Choose<EvaluationSet>("--worker_eval_set", f.worker_eval_set,
                                                {{"test", EvaluationSet::kTest},
                                                 {"validation", EvaluationSet::kValidation}}));
  if (config->worker.evaluation_set == EvaluationSet::kValidation && f.validation_size == 0) {
    return InvalidArgument(
        "--worker_eval_set validation has no images with --validation_size 0: give it a size");
  }
  PASSEL_RETURN_IF_ERROR(
      CheckRange("--worker_eval_steps", static_cast<double>(f.worker_eval_steps), 0, 1e12));
  config->worker.evaluation_steps = f.worker_eval_steps;
  const std::string style = !f.log_lines.empty()            ? f.log_lines
                            : of == JobFlagsOf::kTaskByHand ? "task"
                                                            : "none";
  PASSEL_ASSIGN_OR_RETURN(config->log_style, ParseLogStyle(style));
  PASSEL_RETURN_IF_ERROR(
      CheckRange("--log_step_count_steps", static_cast<double>(f.log_step_count_steps), 1, 1e12));
  PASSEL_RETURN_IF_ERROR(CheckRange("--log_epochs", static_cast<double>(f.log_epochs), 0, 1e9));
  config->log_steps = f.log_step_count_steps;
  config->log_epochs = f.log_epochs;
  return {};
}

}  // namespace

Result<JobConfig> CheckJobFlags(const JobFlags& f, JobFlagsOf of) {
  JobConfig config;
  LogLevel level;
  if (!ParseLogLevel(f.log_level, &level)) {
    return InvalidArgument(fmt::format(
        "--log_level {} is not known: use one of debug, info, warning, error", f.log_level));
  }
  SetLogLevel(level);
  PASSEL_ASSIGN_OR_RETURN(const ModelKind kind, ParseModelKind(f.model));
  config.model = DefaultModelConfig(kind);
  if (kind == ModelKind::kMlp) {
    PASSEL_ASSIGN_OR_RETURN(config.model.hidden, ParseHiddenUnits(f.hidden_units));
  }
  PASSEL_ASSIGN_OR_RETURN(config.model.loss, ParseLossReduction(f.loss));
  config.model.seed = f.seed;
  PASSEL_ASSIGN_OR_RETURN(config.optimizer, CheckOptimizer(f));
  PASSEL_ASSIGN_OR_RETURN(config.mode, ParseMode(ModeOf(f)));
  PASSEL_RETURN_IF_ERROR(CheckModeFlags(f, &config));
  PASSEL_ASSIGN_OR_RETURN(
      config.placement.strategy,
      Choose<PlacementStrategy>("--placement", f.placement,
                                {{"round_robin", PlacementStrategy::kRoundRobin},
                                 {"greedy", PlacementStrategy::kGreedyBytes}}));
  PASSEL_ASSIGN_OR_RETURN(config.placement.partitioner, ParsePartitioner(f.partitioner));
  PASSEL_ASSIGN_OR_RETURN(
      config.placement.global_step_last,
      Choose<bool>("--global_step", f.global_step, {{"first", false}, {"last", true}}));
  for (const std::string& text : f.pin_variable) {
    PASSEL_ASSIGN_OR_RETURN(PlacementOptions::Pin pin, ParsePin(text));
    config.placement.pins.push_back(std::move(pin));
  }
  PASSEL_RETURN_IF_ERROR(CheckRange("--batch_size", static_cast<double>(f.batch_size), 1, 1 << 24));
  PASSEL_RETURN_IF_ERROR(
      CheckRange("--train_examples", static_cast<double>(f.train_examples), 0, 1e9));
  config.train_examples = static_cast<std::uint64_t>(f.train_examples);
  config.validation_size = f.validation_size;  // its limits depend on the data
  PASSEL_RETURN_IF_ERROR(CheckStopRules(f, &config.worker));
  PASSEL_RETURN_IF_ERROR(CheckEvaluationAndLog(f, of, &config));
  PASSEL_RETURN_IF_ERROR(CheckRange("--threads_per_worker", f.threads_per_worker, 1, 256));
  PASSEL_RETURN_IF_ERROR(CheckTowers(f));
  if (!(f.memory_fraction > 0 && f.memory_fraction <= 1)) {
    return InvalidArgument(fmt::format(
        "--memory_fraction is above 0 and up to 1, not {}: change it", f.memory_fraction));
  }
  PASSEL_RETURN_IF_ERROR(CheckRange("--stall_limit", f.stall_limit, 0.05, 1e6));
  PASSEL_RETURN_IF_ERROR(CheckRange("--start_wait", f.start_wait, 0.1, 1e6));
  PASSEL_RETURN_IF_ERROR(CheckRange("--ps_wait", f.ps_wait, 0, 1e6));
  if (f.spin_us) PASSEL_RETURN_IF_ERROR(CheckRange("--spin_us", *f.spin_us, 0, 1e6));
  PASSEL_RETURN_IF_ERROR(CheckRange("--eval_interval", f.eval_interval, 0.01, 1e6));
  PASSEL_RETURN_IF_ERROR(CheckRange("--eval_steps", static_cast<double>(f.eval_steps), 0, 1e12));
  WorkerOptions& w = config.worker;
  w.batch_size = static_cast<std::uint32_t>(f.batch_size);
  w.seed = f.seed;
  w.shard_data = f.shard_data;
  PASSEL_ASSIGN_OR_RETURN(
      w.pull,
      Choose<PullMode>("--pull", f.pull, {{"view", PullMode::kView}, {"copy", PullMode::kCopy}}));
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
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
  config.stall_limit_ns = ns(f.stall_limit);
  config.start_wait_ns = ns(f.start_wait);
  config.ps_wait_ns = ns(f.ps_wait);
  config.spin_us = f.spin_us.value_or(-1);
  config.eval_interval_ns = ns(f.eval_interval);
  config.eval_steps = f.eval_steps;
  // A round may wait for the start of a worker and for one that stalls.
  w.push_limit = std::chrono::nanoseconds(config.stall_limit_ns + config.start_wait_ns) +
                 std::chrono::minutes(1);
  return config;
}

Result<DataSplit> SplitData(const JobConfig& config, const Dataset& data) {
  return SplitValidation(data, config.validation_size, config.train_examples);
}

Status FitToData(const Dataset& data, JobConfig* config) {
  PASSEL_ASSIGN_OR_RETURN(const DataSplit split, SplitData(*config, data));
  config->model.inputs = data.train().pixels;
  config->model.classes = data.num_classes();
  PASSEL_RETURN_IF_ERROR(config->model.Validate());
  if (config->worker.batch_size > split.train.size()) {
    return InvalidArgument(
        fmt::format("--batch_size is at most the {} examples of the training set, not {}: lower it",
                    split.train.size(), config->worker.batch_size));
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

LogLines MakeLogLines(const JobConfig& config, int index, bool chief) {
  LogLineOptions options;
  options.style = config.log_style;
  options.worker = index;
  options.chief = chief;
  options.steps = config.log_steps;
  options.epochs = config.log_epochs;
  options.train_steps = config.worker.train_steps;
  return LogLines(options, [](std::string_view line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  });
}

Result<StorePlan> MakePlan(const JobConfig& config, int shards, int workers) {
  StorePlan plan;
  plan.mode = config.mode;
  plan.replicas_to_aggregate = config.replicas_to_aggregate;
  if (plan.mode == Mode::kReplicas && plan.replicas_to_aggregate == 0) {
    plan.replicas_to_aggregate = workers;
  }
  plan.staleness_bound = config.staleness_bound;
  plan.schedule = config.mode_schedule;
  for (const WorkerOptions::SlowWorker& slow : config.worker.slow_workers) {
    if (slow.index < workers) continue;
    return InvalidArgument(
        fmt::format("--slow_worker {0}:{1}ms: there is no worker/{0}, the job "
                    "has {2}: use an index below that",
                    slow.index, slow.delay.count(), workers));
  }
  plan.optimizer = config.optimizer;
  plan.num_workers = workers;
  PASSEL_ASSIGN_OR_RETURN(plan.variables, PlaceModel(config.model, shards, config.placement));
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  return plan;
}

Result<std::unique_ptr<Towers>> MakeTowers(const JobConfig& config) {
  if (config.towers == 1) return std::unique_ptr<Towers>();
  return Towers::Create(config.model, config.towers, config.worker.batch_size,
                        [] { return CreateCpuBackend(); });
}

EngineOptions MakeEngineOptions(const JobConfig& config, int workers, int cores) {
  EngineOptions options;
  const double spin_us = config.spin_us >= 0                ? config.spin_us
                         : workers * config.towers <= cores ? 500
                                                            : 20;
  options.spin = std::chrono::nanoseconds(static_cast<std::int64_t>(spin_us * 1e3));
  options.stall_limit = std::chrono::nanoseconds(config.stall_limit_ns);
  options.join_limit = std::chrono::nanoseconds(config.start_wait_ns);
  return options;
}

}  // namespace passel
