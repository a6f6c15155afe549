#include "bench/training.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "bench/timed_backend.h"
#include "compute/cpu_backend.h"
#include "lab/processes.h"
#include "lab/samples.h"
#include "train/model_plan.h"
#include "train/worker_loop.h"

namespace passel::bench {
namespace {

constexpr std::size_t kTestImages = 1000;
constexpr std::size_t kLoggedSteps = 1 << 15;

struct WorkerLog {
  std::int64_t local_steps;
  double steps_per_second;
  double push_us, compute_us, wait_us;
  double gather_us, forward_us, backward_us;
  std::uint64_t overlapped;
  double accuracy;  // worker 0
  HistogramSummary push_ns;
  std::size_t num_steps;
  std::array<float, kLoggedSteps> step_us;  // of the first ones after the warm-up
};

Deadline Soon(double seconds) {
  return Deadline::After(std::chrono::seconds(60 + static_cast<int>(4 * seconds)));
}

double Load(const std::atomic<std::uint64_t>& counter) {
  return static_cast<double>(counter.load(std::memory_order_relaxed));
}

Result<StorePlan> MakePlan(const ModelConfig& model, Mode mode, int workers) {
  StorePlan plan;
  plan.mode = mode;
  plan.num_workers = workers;
  PASSEL_ASSIGN_OR_RETURN(plan.optimizer, ParseOptimizer("adam"));
  PASSEL_ASSIGN_OR_RETURN(plan.variables, PlaceModel(model, 1, {}));
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  return plan;
}

// Times the steps from the end of the first one after the warm-up to the end of the last one.
class StepTimes final : public Hook {
 public:
  StepTimes(std::int64_t warm_ns, WorkerLog* log) : warm_ns_(warm_ns), log_(log) {}

  Status AfterRun(HookContext& context) override {
    const std::int64_t now = MonotonicNs();
    const std::int64_t step = context.step().local_step;
    if (first_ns_ == 0 && now >= warm_ns_) {
      first_ns_ = now;
      first_step_ = step;
    }
    if (now >= warm_ns_ && last_ns_ != 0 && log_->num_steps < kLoggedSteps) {
      log_->step_us[log_->num_steps++] = 1e-3F * static_cast<float>(now - last_ns_);
    }
    last_ns_ = now;
    last_step_ = step;
    return {};
  }

  bool HasSpan() const { return first_ns_ != 0 && last_step_ > first_step_; }
  double StepsPerSecond() const {
    return 1e9 * static_cast<double>(last_step_ - first_step_) /
           static_cast<double>(last_ns_ - first_ns_);
  }

 private:
  const std::int64_t warm_ns_;
  WorkerLog* const log_;
  std::int64_t first_ns_ = 0, last_ns_ = 0, first_step_ = 0, last_step_ = 0;
};

// What one process does: it has its store, the gate is closed.
Status Train(const TrainingJob& job, const ModelConfig& config, ParameterStore& store,
             lab::Gate& gate, WorkerLog* log) {
  PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout, ModelLayout::Make(config, store.variables()));
  if (store.worker() == 0) {
    PASSEL_RETURN_IF_ERROR(InitializeStore(config, layout, store));
  }
  PASSEL_RETURN_IF_ERROR(store.WaitUntilInitialized(Soon(0)));
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateCpuBackend());
  PartTimes parts;
  if (job.time_parts) backend = TimeParts(std::move(backend), &parts);
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Model::Create(config, *backend, 500));
  WorkerOptions options;
  options.train_steps = kNoStepLimit;
  options.batch_size = job.batch_size;
  options.seed = 1;
  options.num_workers = job.workers;
  options.push_limit = std::chrono::seconds(30);
  PASSEL_RETURN_IF_ERROR(gate.Wait(Soon(0)));
  const std::int64_t start = MonotonicNs();
  const auto ns = [](double seconds) { return static_cast<std::int64_t>(1e9 * seconds); };
  const std::int64_t warm = start + ns(job.seconds / 10);
  const std::int64_t end = warm + ns(job.seconds);
  StepTimes times(warm, log);
  WorkerCallbacks callbacks;
  callbacks.hooks = {&times};
  callbacks.check = [&](bool* leave) -> Status {
    const std::int64_t now = MonotonicNs();
    // A worker that others kept off its core goes on until it has a step to count.
    *leave = now >= end && (times.HasSpan() || now >= end + ns(10));
    return {};
  };
  PASSEL_ASSIGN_OR_RETURN(const DataSplit data, SplitValidation(*job.data, 0));
  PASSEL_ASSIGN_OR_RETURN(const WorkerResult result,
                          RunWorker(options, callbacks, *model, layout, data, store));
  if (!times.HasSpan()) {
    return Internal(fmt::format("a worker made {} steps in {} s and 10 s more: give it longer runs",
                                result.local_steps, job.seconds));
  }
  const WorkerCounters& counters = store.counters();
  const auto steps = static_cast<double>(result.local_steps);
  log->local_steps = result.local_steps;
  log->steps_per_second = times.StepsPerSecond();
  log->push_us = 1e-3 * (Load(counters.push_ns) + Load(counters.wait_ns)) / steps;
  log->wait_us = 1e-3 * Load(counters.wait_ns) / steps;
  log->compute_us = 1e-3 * Load(counters.compute_ns) / steps;
  const auto per_step = [steps](std::int64_t sum) {
    return 1e-3 * static_cast<double>(sum) / steps;
  };
  log->gather_us = per_step(parts.gather);
  log->forward_us = per_step(parts.forward);
  log->backward_us = per_step(parts.backward);
  log->overlapped = counters.overlapped_blocks.load(std::memory_order_relaxed);
  const Histogram* histogram = &counters.push_latency_ns;
  log->push_ns = Summarize(std::span(&histogram, 1));
  return {};
}

// Mean over the steps of (the longest step of all workers), divided by the mean step.
double SlowestOf(const lab::SharedArray<WorkerLog>& logs, std::size_t workers) {
  std::size_t steps = kLoggedSteps;
  for (std::size_t k = 0; k < workers; ++k) steps = std::min(steps, logs[k].num_steps);
  double sum = 0, sum_of_longest = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    float longest = 0;
    for (std::size_t k = 0; k < workers; ++k) {
      longest = std::max(longest, logs[k].step_us[i]);
      sum += static_cast<double>(logs[k].step_us[i]) / static_cast<double>(workers);
    }
    sum_of_longest += static_cast<double>(longest);
  }
  return sum > 0 ? sum_of_longest / sum : 1;
}

std::vector<double> AllSteps(const lab::SharedArray<WorkerLog>& logs, std::size_t workers) {
  std::vector<double> all;
  for (std::size_t k = 0; k < workers; ++k) {
    all.insert(all.end(), logs[k].step_us.begin(),
               logs[k].step_us.begin() + static_cast<std::ptrdiff_t>(logs[k].num_steps));
  }
  std::ranges::sort(all);
  return all;
}

// What runs beside the workers, from the end of their warm-up on.
Status RunBeside(const TrainingJob& job, lab::Gate& gate) {
  PASSEL_RETURN_IF_ERROR(gate.Wait(Soon(0)));
  std::this_thread::sleep_for(std::chrono::duration<double>(job.seconds / 10));
  return job.beside();
}

// On the first test images, at values that nobody writes any more.
Result<double> Accuracy(const TrainingJob& job, const ModelConfig& config, const StorePlan& plan,
                        const float* values) {
  PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout, ModelLayout::Make(config, plan.variables));
  for (std::size_t i = 0; i < plan.variables.ShardFloats(0); ++i) {
    if (!std::isfinite(values[i])) return Internal("a trained value is not finite");
  }
  std::vector<std::vector<RowPart>> parts;
  layout.Bind(std::span<const float* const>(&values, 1), &parts);
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend());
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Model::Create(config, *backend, 100));
  const ImageSet& test = job.data->test();
  const std::size_t count = std::min(kTestImages, test.size());
  PASSEL_ASSIGN_OR_RETURN(
      const Evaluation found,
      model->Evaluate({test.images.data(), test.labels.data(), test.size()}, 0, count, parts));
  return static_cast<double>(found.correct) / static_cast<double>(count);
}

}  // namespace

std::string_view TrainingSharingName(const TrainingSharing& sharing) {
  return sharing ? lab::SharingName(*sharing) : "private";
}

TrainingJob JobOf(const Suite& suite, const Dataset& data, int workers) {
  TrainingJob job;
  job.data = &data;
  job.workers = workers;
  job.cores = suite.usable_cores();
  job.seconds = suite.settings().RunSeconds();
  return job;
}

Result<TrainingRun> RunTraining(const TrainingJob& job, const TrainingSharing& sharing) {
  ModelConfig config = DefaultModelConfig(ModelKind::kMlp);
  config.hidden = {job.hidden};
  config.inputs = job.data->train().image_pixels;
  config.classes = job.data->num_classes();
  config.loss = LossReduction::kMean;
  config.seed = 1;
  const bool is_private = !sharing;
  const Mode mode = is_private ? Mode::kHogwild : sharing->mode;
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan,
                          MakePlan(config, mode, is_private ? 1 : job.workers));
  const WaitOptions engine = lab::EngineFor(job.workers, job.cores);
  std::unique_ptr<shm::Arena> arena;
  if (!is_private) {
    PASSEL_ASSIGN_OR_RETURN(shm::Arena created, lab::CreateArena(plan));
    arena = std::make_unique<shm::Arena>(std::move(created));
  }
  const auto workers = static_cast<std::size_t>(job.workers);
  lab::SharedArray<WorkerLog> logs(workers);
  const auto body = [&](int worker, lab::Gate& gate) -> Status {
    if (worker == job.workers) return RunBeside(job, gate);
    WorkerLog& log = logs[static_cast<std::size_t>(worker)];
    if (is_private) {
      PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<InProcessArena> own,
                              InProcessArena::Create(plan));
      PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<ParameterStore> store, own->Open(0, engine));
      PASSEL_RETURN_IF_ERROR(Train(job, config, *store, gate, &log));
      PASSEL_ASSIGN_OR_RETURN(log.accuracy, Accuracy(job, config, plan, own->shard(0).values));
      return {};
    }
    PASSEL_ASSIGN_OR_RETURN(const shm::Arena mine, lab::AdoptArena(arena->fd()));
    const ShardMemory memory = mine.memory();
    std::unique_ptr<ParameterStore> store;
    if (sharing == lab::Foil::kNaive) {
      PASSEL_ASSIGN_OR_RETURN(store, OpenNaiveStore(plan, memory, worker, engine));
    } else {
      PASSEL_ASSIGN_OR_RETURN(store, OpenStore(plan, {&memory, 1}, worker, SelfIdentity(), engine));
    }
    return Train(job, config, *store, gate, &log);
  };
  std::vector<std::vector<int>> cores = lab::OneCoreEach(job.workers);
  if (job.beside) cores.emplace_back();
  PASSEL_RETURN_IF_ERROR(lab::RunProcesses(cores, Soon(job.seconds), body));

  TrainingRun run;
  std::int64_t local_steps = 0;
  for (std::size_t k = 0; k < workers; ++k) {
    const auto share = 1 / static_cast<double>(workers);
    run.steps_per_second += logs[k].steps_per_second;
    run.push_us += share * logs[k].push_us;
    run.compute_us += share * logs[k].compute_us;
    run.wait_us += share * logs[k].wait_us;
    run.gather_us += share * logs[k].gather_us;
    run.forward_us += share * logs[k].forward_us;
    run.backward_us += share * logs[k].backward_us;
    run.overlapped_share += static_cast<double>(logs[k].overlapped);
    local_steps += logs[k].local_steps;
  }
  run.overlapped_share /= static_cast<double>(local_steps) * static_cast<double>(plan.NumBlocks(0));
  run.push_ns = logs[0].push_ns;
  run.slowest = SlowestOf(logs, workers);
  const std::vector<double> all_steps = AllSteps(logs, workers);
  if (!all_steps.empty()) {
    run.median_step_us = lab::Median(all_steps);
    run.p99_step_us = all_steps[(all_steps.size() * 99) / 100];
  }
  run.accuracy = logs[0].accuracy;
  if (!is_private) {
    const std::int64_t global_step = arena->memory().state->global_step.load();
    if (sharing != Mode::kBarrier && global_step != local_steps) {
      return Internal(fmt::format("{} workers pushed {} gradients, but {} were applied",
                                  job.workers, local_steps, global_step));
    }
    // Everyone took part from the first round until it left, and the last one saw all rounds.
    std::int64_t most = 0;
    for (std::size_t k = 0; k < workers; ++k) most = std::max(most, logs[k].local_steps);
    if (sharing == Mode::kBarrier && most != global_step) {
      return Internal(
          fmt::format("of {} rounds the last worker to leave has seen {}", global_step, most));
    }
    PASSEL_ASSIGN_OR_RETURN(run.accuracy, Accuracy(job, config, plan, arena->memory().values));
  }
  // 300 updates give more than 0.8; naive sweeps may lose some.
  const std::int64_t updates =
      sharing == Mode::kBarrier || is_private ? logs[0].local_steps : local_steps;
  if (updates >= 300 && run.accuracy < 0.7) {
    return Internal(fmt::format("after {} updates the accuracy is {:.3f}", updates, run.accuracy));
  }
  return run;
}

}  // namespace passel::bench
