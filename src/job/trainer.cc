#include "job/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "compute/cpu_backend.h"
#include "compute/matrix_kernels.h"
#include "io/checkpoint_files.h"
#include "job/job_status.h"
#include "train/profiler_hook.h"
#include "train/summary_writer.h"

namespace passel::job {
namespace {

Result<std::unique_ptr<Towers>> MakeTowers(const JobConfig& config, std::chrono::nanoseconds spin) {
  if (config.towers == 1) return std::unique_ptr<Towers>();
  return Towers::Create(
      config.model, config.towers, config.worker.batch_size, [] { return CreateCpuBackend(); },
      spin);
}

}  // namespace

Result<Trainer> Trainer::Create(const JobConfig& config, const Dataset& data,
                                std::chrono::nanoseconds spin, int trainer, LogLines& log) {
  Trainer made(log);
  made.timeline_dir_ = config.timeline_dir;
  made.timeline_steps_ = config.timeline_steps;
  CpuBackendOptions compute;
  compute.threads = config.threads_per_worker;
  made.kernel_threads_ = compute.threads;
  PASSEL_ASSIGN_OR_RETURN(made.backend_, CreateCpuBackend(compute));
  PASSEL_ASSIGN_OR_RETURN(made.model_, Model::Create(config.model, *made.backend_,
                                                     std::max<std::size_t>(config.worker.batch_size,
                                                                           kEvaluationBatch)));
  PASSEL_ASSIGN_OR_RETURN(made.towers_, MakeTowers(config, spin));
  PASSEL_ASSIGN_OR_RETURN(made.split_, SplitData(config, data));
  log.SetStepsPerEpoch(StepsPerEpoch(config.worker, made.split_.train.size(), trainer));
  return made;
}

std::vector<const WorkerCounters*> CountersOf(const ShardMemory& lead) {
  std::vector<const WorkerCounters*> counters;
  for (int worker = 0; worker < lead.num_workers; ++worker) {
    counters.push_back(&lead.tasks[worker].counters);
  }
  return counters;
}

void Trainer::WriteSummaries(const JobConfig& config, std::vector<const WorkerCounters*> workers,
                             bool has_ps, const std::string& checkpoints) {
  summaries_ = config.summaries;
  summaries_.checkpoints = checkpoints;
  summaries_.places.has_ps = has_ps;
  summaries_.workers = std::move(workers);
}

// In a folder of its own: in rounds the workers have the same global steps.
Result<std::unique_ptr<Hook>> Trainer::MakeTimeline(std::string worker) const {
  std::ranges::replace(worker, '/', '-');
  ProfilerOptions options{.every = {.steps = timeline_steps_},
                          .output_dir = timeline_dir_ + "/" + worker};
  std::error_code error;
  std::filesystem::create_directories(options.output_dir, error);
  if (error) {
    return InvalidArgument(
        fmt::format("--timeline_dir {}: the folder {} cannot be made ({}): name another one",
                    timeline_dir_, worker, error.message()));
  }
  // A life before this one was perhaps killed while it wrote.
  const Result<std::vector<std::string>> files = FilesIn(options.output_dir);
  for (const std::string& file : files.ok() ? *files : std::vector<std::string>()) {
    if (TargetOfTemporary(file).starts_with("timeline-")) {
      std::filesystem::remove(InFolder(options.output_dir, file), error);
    }
  }
  return MakeProfiler(options);
}

Result<WorkerResult> Trainer::Run(const WorkerOptions& options, WorkerCallbacks callbacks,
                                  const ModelLayout& layout, ParameterStore& store,
                                  const EngineUse& engine) {
  // Relaxed: a fact for those who look at the job.
  const bool on_gpu = engine.engine != nullptr;
  store.counters().device.store(
      on_gpu ? DeviceWord(2, 0) : DeviceWord(1, MatrixKernelsCode(kernel_threads_)),
      std::memory_order_relaxed);
  if (towers_) {
    callbacks.compute = [this](const Batch& batch, ParameterParts params, GradientParts gradients) {
      return towers_->LossAndGradient(batch, params, gradients);
    };
  }
  std::vector<Hook*> first = log_->Hooks();
  std::unique_ptr<SummaryWriter> summaries;
  if (!summaries_.folder.empty()) {
    summaries = SummaryWriter::Create(summaries_, model_->config(), layout, store);
  }
  if (summaries) first.push_back(summaries.get());
  std::unique_ptr<Hook> timeline;
  if (!timeline_dir_.empty()) {
    PASSEL_ASSIGN_OR_RETURN(timeline, MakeTimeline(options.names(store.worker())));
    first.push_back(timeline.get());
  }
  callbacks.hooks.insert(callbacks.hooks.begin(), first.begin(), first.end());
  PASSEL_ASSIGN_OR_RETURN(const WorkerResult result,
                          RunWorker(options, callbacks, *model_, layout, split_, store, engine));
  log_->Final(result);
  return result;
}

}  // namespace passel::job
