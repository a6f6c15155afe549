#include "tools/passel/job_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "base/log.h"

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

Result<OptimizerConfig> CheckOptimizer(const JobFlags& flags) {
  PASSEL_ASSIGN_OR_RETURN(OptimizerConfig o, ParseOptimizer(flags.optimizer));
  // What trains the default model well; Adam's is TensorFlow's default.
  o.learning_rate = flags.learning_rate >= 0 ? flags.learning_rate
                    : o.kind == OptimizerKind::kAdam || o.kind == OptimizerKind::kRmsProp ? 0.001
                    : o.kind == OptimizerKind::kSgd                                       ? 0.1
                                                                                          : 0.05;
  const auto wrong = [&](const char* flag) {
    return InvalidArgument(
        fmt::format("{} has no meaning for --optimizer {}: leave it away", flag, flags.optimizer));
  };
  const bool adam = o.kind == OptimizerKind::kAdam;
  const bool rmsprop = o.kind == OptimizerKind::kRmsProp;
  const bool ftrl = o.kind == OptimizerKind::kFtrl;
  if (flags.momentum >= 0) {
    if (rmsprop)
      o.rmsprop_momentum = flags.momentum;
    else if (o.kind == OptimizerKind::kMomentum)
      o.momentum = flags.momentum;
    else
      return wrong("--momentum");
  }
  if (flags.use_nesterov) {
    if (o.kind != OptimizerKind::kMomentum) return wrong("--use_nesterov");
    o.use_nesterov = 1;
  }
  if (flags.centered) {
    if (!rmsprop) return wrong("--centered");
    o.centered = 1;
  }
  if (flags.decay >= 0) {
    if (!rmsprop) return wrong("--decay");
    o.rmsprop_decay = flags.decay;
  }
  if (flags.epsilon >= 0) {
    if (adam)
      o.adam_epsilon = flags.epsilon;
    else if (rmsprop)
      o.rmsprop_epsilon = flags.epsilon;
    else
      return wrong("--epsilon");
  }
  if (flags.beta1 >= 0) {
    if (!adam) return wrong("--beta1");
    o.adam_beta1 = flags.beta1;
  }
  if (flags.beta2 >= 0) {
    if (!adam) return wrong("--beta2");
    o.adam_beta2 = flags.beta2;
  }
  if (flags.initial_accumulator_value >= 0) {
    if (o.kind != OptimizerKind::kAdagrad && !ftrl) return wrong("--initial_accumulator_value");
    o.initial_accumulator = flags.initial_accumulator_value;
  }
  if (!ftrl) {
    if (flags.l1 >= 0) return wrong("--l1");
    if (flags.l2 >= 0) return wrong("--l2");
    if (flags.l2_shrinkage >= 0) return wrong("--l2_shrinkage");
    if (flags.learning_rate_power <= 0) return wrong("--learning_rate_power");
  } else {
    if (flags.l1 >= 0) o.l1 = flags.l1;
    if (flags.l2 >= 0) o.l2 = flags.l2;
    if (flags.l2_shrinkage >= 0) o.l2_shrinkage = flags.l2_shrinkage;
    if (flags.learning_rate_power <= 0) o.learning_rate_power = flags.learning_rate_power;
  }
  PASSEL_RETURN_IF_ERROR(Validate(o));
  return o;
}

constexpr int kDefaultStalenessBound = 3;

std::string ModeOf(const JobFlags& f) {
  if (!f.sync_replicas) return f.mode;
  return f.replicas_to_aggregate ? "replicas" : "barrier";
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
  for (const std::string& text : f.slow_worker) {
    PASSEL_ASSIGN_OR_RETURN(const WorkerOptions::SlowWorker slow, ParseSlowWorker(text));
    config->worker.slow_workers.push_back(slow);
  }
  return {};
}

}  // namespace

void AddJobFlags(CLI::App& app, JobFlags* f) {
  app.add_option("--data_dir", f->data_dir,
                 "Directory with the four IDX files, plain or gzip. Else $PASSEL_DATA_DIR, else "
                 "../shared/data/mnist, else a download, else generated digits")
      ->group("Data");
  app.add_option("--batch_size", f->batch_size, "Examples per gradient")
      ->group("Data")
      ->capture_default_str();
  app.add_option("--sampler", f->sampler,
                 "next_batch: every example once per epoch; random: independent batches")
      ->group("Data")
      ->capture_default_str();
  app.add_flag("--shard_data", f->shard_data,
               "Worker i of N draws only from the examples e with e mod N = i")
      ->group("Data");

  app.add_option("--model", f->model, "mlp or softmax")->group("Model")->capture_default_str();
  app.add_option("--hidden_units", f->hidden_units, "Widths of the hidden layers, e.g. 256,128")
      ->group("Model")
      ->capture_default_str();
  app.add_option("--loss", f->loss, "mean or sum of the cross-entropy over a batch")
      ->group("Model")
      ->capture_default_str();
  app.add_option("--seed", f->seed, "Of the first values and of every worker's order of examples")
      ->group("Model")
      ->capture_default_str();

  app.add_option("--optimizer", f->optimizer,
                 "sgd, momentum, nesterov, adagrad, rmsprop, adam or ftrl")
      ->group("Optimizer")
      ->capture_default_str();
  app.add_option("--learning_rate", f->learning_rate,
                 "Default: adam and rmsprop 0.001, sgd 0.1, others 0.05")
      ->group("Optimizer");
  const auto hyper = [&](const char* name, double* value, const char* help) {
    app.add_option(name, *value, help)->group("Optimizer");
  };
  hyper("--momentum", &f->momentum, "momentum, rmsprop");
  app.add_flag("--use_nesterov", f->use_nesterov, "momentum")->group("Optimizer");
  hyper("--decay", &f->decay, "rmsprop");
  app.add_flag("--centered", f->centered, "rmsprop")->group("Optimizer");
  hyper("--epsilon", &f->epsilon, "adam, rmsprop");
  hyper("--beta1", &f->beta1, "adam");
  hyper("--beta2", &f->beta2, "adam");
  hyper("--initial_accumulator_value", &f->initial_accumulator_value, "adagrad, ftrl");
  hyper("--l1", &f->l1, "ftrl");
  hyper("--l2", &f->l2, "ftrl");
  hyper("--l2_shrinkage", &f->l2_shrinkage, "ftrl");
  hyper("--learning_rate_power", &f->learning_rate_power, "ftrl");

  app.add_option("--mode", f->mode,
                 "hogwild: at once, lock-free; locked: at once, nothing lost; barrier: one mean "
                 "gradient of all workers per update; replicas: the mean of the first R "
                 "gradients; ssp: hogwild with a bound on how far workers get ahead")
      ->group("Training")
      ->capture_default_str();
  app.add_flag("--sync_replicas,!--nosync_replicas", f->sync_replicas,
               "The same as --mode barrier; with --replicas_to_aggregate as --mode replicas")
      ->group("Training");
  app.add_option("--replicas_to_aggregate", f->replicas_to_aggregate,
                 "replicas: gradients per update, R. Fewer than workers: the slowest are dropped; "
                 "more: several per worker. Default: the number of workers")
      ->group("Training");
  app.add_option("--staleness_bound", f->staleness_bound,
                 "ssp: steps a worker may be ahead of the slowest. Default: 3")
      ->group("Training");
  app.add_option("--slow_worker", f->slow_worker,
                 "INDEX:DELAYms,... Workers that sleep after each gradient, for experiments")
      ->group("Training")
      ->delimiter(',');
  app.add_option("--train_steps", f->train_steps,
                 "Global steps: updates applied to the variables, by all workers together")
      ->group("Training")
      ->capture_default_str();
  app.add_option("--pull", f->pull,
                 "view: compute on the shared values themselves; copy: on a private copy")
      ->group("Training")
      ->capture_default_str();
  app.add_option("--on_nan", f->on_nan,
                 "What to do with a gradient that is not finite: stop, or skip it and count")
      ->group("Training")
      ->capture_default_str();

  app.add_option("--placement", f->placement, "Of variables on ps tasks: round_robin or greedy")
      ->group("Placement")
      ->capture_default_str();
  app.add_option("--partitioner", f->partitioner,
                 "none, fixed:PARTS, min_max:MAX_PARTS[:MIN_BYTES] or axis:MAX_BYTES[:MAX_PARTS]")
      ->group("Placement")
      ->capture_default_str();

  app.add_option("--threads_per_worker", f->threads_per_worker, "Of the matrix library")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--huge_pages", f->huge_pages, "off, transparent or explicit")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--spin_us", f->spin_us,
                 "How long a wait spins before it sleeps, in microseconds. Default: 500 if every "
                 "worker has a core, else 20")
      ->group("Machine");
  app.add_option("--stall_limit", f->stall_limit,
                 "Seconds after which a worker that does not answer no longer holds up the others")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--start_wait", f->start_wait, "Seconds to wait for other tasks to start")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--ps_wait", f->ps_wait,
                 "Seconds a worker without a supervisor goes on without its ps")
      ->group("Machine")
      ->capture_default_str();
  app.add_option("--log_level", f->log_level, "debug, info, warning or error")
      ->group("Machine")
      ->capture_default_str();
}

std::vector<std::string> ToArguments(const JobFlags& f) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* name, const auto& value) {
    arguments.push_back(fmt::format("{}={}", name, value));
  };
  if (!f.data_dir.empty()) add("--data_dir", f.data_dir);
  add("--batch_size", f.batch_size);
  add("--sampler", f.sampler);
  if (f.shard_data) arguments.emplace_back("--shard_data");
  add("--model", f.model);
  add("--hidden_units", f.hidden_units);
  add("--loss", f.loss);
  add("--seed", f.seed);
  add("--optimizer", f.optimizer);
  const auto add_if_set = [&](const char* name, double value) {
    if (value >= 0) add(name, value);  // fmt prints the shortest text that reads back the same
  };
  add_if_set("--learning_rate", f.learning_rate);
  add_if_set("--momentum", f.momentum);
  if (f.use_nesterov) arguments.emplace_back("--use_nesterov");
  add_if_set("--decay", f.decay);
  if (f.centered) arguments.emplace_back("--centered");
  add_if_set("--epsilon", f.epsilon);
  add_if_set("--beta1", f.beta1);
  add_if_set("--beta2", f.beta2);
  add_if_set("--initial_accumulator_value", f.initial_accumulator_value);
  add_if_set("--l1", f.l1);
  add_if_set("--l2", f.l2);
  add_if_set("--l2_shrinkage", f.l2_shrinkage);
  if (f.learning_rate_power <= 0) add("--learning_rate_power", f.learning_rate_power);
  add("--mode", ModeOf(f));
  if (f.replicas_to_aggregate) add("--replicas_to_aggregate", *f.replicas_to_aggregate);
  if (f.staleness_bound) add("--staleness_bound", *f.staleness_bound);
  for (const std::string& slow : f.slow_worker) add("--slow_worker", slow);
  add("--train_steps", f.train_steps);
  add("--pull", f.pull);
  add("--on_nan", f.on_nan);
  add("--placement", f.placement);
  add("--partitioner", f.partitioner);
  add("--threads_per_worker", f.threads_per_worker);
  add("--huge_pages", f.huge_pages);
  add_if_set("--spin_us", f.spin_us);
  add("--stall_limit", f.stall_limit);
  add("--start_wait", f.start_wait);
  add("--ps_wait", f.ps_wait);
  add("--log_level", f.log_level);
  return arguments;
}

Result<JobConfig> CheckJobFlags(const JobFlags& f) {
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
  PASSEL_RETURN_IF_ERROR(CheckRange("--batch_size", static_cast<double>(f.batch_size), 1, 1 << 24));
  PASSEL_RETURN_IF_ERROR(CheckRange("--train_steps", static_cast<double>(f.train_steps), 1, 1e12));
  PASSEL_RETURN_IF_ERROR(CheckRange("--threads_per_worker", f.threads_per_worker, 1, 256));
  PASSEL_RETURN_IF_ERROR(CheckRange("--stall_limit", f.stall_limit, 0.05, 1e6));
  PASSEL_RETURN_IF_ERROR(CheckRange("--start_wait", f.start_wait, 0.1, 1e6));
  PASSEL_RETURN_IF_ERROR(CheckRange("--ps_wait", f.ps_wait, 0, 1e6));
  if (f.spin_us >= 0) PASSEL_RETURN_IF_ERROR(CheckRange("--spin_us", f.spin_us, 0, 1e6));
  WorkerOptions& w = config.worker;
  w.train_steps = f.train_steps;
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
  config.threads_per_worker = f.threads_per_worker;
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
  config.stall_limit_ns = ns(f.stall_limit);
  config.start_wait_ns = ns(f.start_wait);
  config.ps_wait_ns = ns(f.ps_wait);
  config.spin_us = f.spin_us;
  // A round may wait for the start of a worker and for one that stalls.
  w.push_limit = std::chrono::nanoseconds(config.stall_limit_ns + config.start_wait_ns) +
                 std::chrono::minutes(1);
  return config;
}

Status FitToData(const Dataset& data, JobConfig* config) {
  config->model.inputs = data.train().pixels;
  config->model.classes = data.num_classes();
  PASSEL_RETURN_IF_ERROR(config->model.Validate());
  if (config->worker.batch_size > data.train().size()) {
    return InvalidArgument(
        fmt::format("--batch_size is at most the {} examples of the training set, not {}: lower it",
                    data.train().size(), config->worker.batch_size));
  }
  return {};
}

Result<StorePlan> MakePlan(const JobConfig& config, int shards, int workers) {
  StorePlan plan;
  plan.mode = config.mode;
  plan.replicas_to_aggregate = config.replicas_to_aggregate;
  if (plan.mode == Mode::kReplicas && plan.replicas_to_aggregate == 0) {
    plan.replicas_to_aggregate = workers;
  }
  plan.staleness_bound = config.staleness_bound;
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

EngineOptions MakeEngineOptions(const JobConfig& config, int workers, int cores) {
  EngineOptions options;
  const double spin_us = config.spin_us >= 0 ? config.spin_us : workers <= cores ? 500 : 20;
  options.spin = std::chrono::nanoseconds(static_cast<std::int64_t>(spin_us * 1e3));
  options.stall_limit = std::chrono::nanoseconds(config.stall_limit_ns);
  options.join_limit = std::chrono::nanoseconds(config.start_wait_ns);
  return options;
}

}  // namespace passel
