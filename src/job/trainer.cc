#include "job/trainer.h"

#include <algorithm>
#include <utility>

#include "compute/cpu_backend.h"
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
  CpuBackendOptions compute;
  compute.threads = config.threads_per_worker;
  PASSEL_ASSIGN_OR_RETURN(made.backend_, CreateCpuBackend(compute));
  PASSEL_ASSIGN_OR_RETURN(made.model_, Model::Create(config.model, *made.backend_,
                                                     std::max<std::size_t>(config.worker.batch_size,
                                                                           kEvaluationBatch)));
  PASSEL_ASSIGN_OR_RETURN(made.towers_, MakeTowers(config, spin));
  PASSEL_ASSIGN_OR_RETURN(made.split_, SplitData(config, data));
  log.SetStepsPerEpoch(StepsPerEpoch(config.worker, made.split_.train.size(), trainer));
  return made;
}

void Trainer::WriteSummaries(const JobConfig& config, const ShardMemory& lead, bool has_ps) {
  summaries_ = config.summaries;
  summaries_.places.has_ps = has_ps;
  for (int worker = 0; worker < lead.num_workers; ++worker) {
    summaries_.workers.push_back(&lead.tasks[worker].counters);
  }
}

Result<WorkerResult> Trainer::Run(const WorkerOptions& options, WorkerCallbacks callbacks,
                                  const ModelLayout& layout, ParameterStore& store,
                                  const EngineUse& engine) {
  // Relaxed: a fact for those who look at the job.
  store.counters().device.store(engine.engine != nullptr ? 2 : 1, std::memory_order_relaxed);
  if (towers_) {
    callbacks.compute = [this](const Batch& batch, ParameterParts params, GradientParts gradients) {
      return towers_->LossAndGradient(batch, params, gradients);
    };
  }
  log_->Follow(&callbacks);
  std::unique_ptr<SummaryWriter> summaries;
  if (!summaries_.folder.empty()) {
    summaries = SummaryWriter::Begin(summaries_, model_->config(), layout, store);
  }
  if (summaries) {
    // The gradients that an engine computes are not looked at.
    if (engine.engine == nullptr && !callbacks.compute) {
      callbacks.compute = [this](const Batch& batch, ParameterParts params,
                                 GradientParts gradients) {
        return model_->LossAndGradient(batch, params, gradients);
      };
    }
    summaries->Follow(&callbacks);
  }
  PASSEL_ASSIGN_OR_RETURN(const WorkerResult result,
                          RunWorker(options, callbacks, *model_, layout, split_, store, engine));
  log_->Final(result);
  if (summaries) summaries->Final(result);
  return result;
}

}  // namespace passel::job
