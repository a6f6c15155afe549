#include "job/trainer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compute/cpu_backend.h"

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
  const std::vector<Hook*> lines = log_->Hooks();
  callbacks.hooks.insert(callbacks.hooks.begin(), lines.begin(), lines.end());
  PASSEL_ASSIGN_OR_RETURN(const WorkerResult result,
                          RunWorker(options, callbacks, *model_, layout, split_, store, engine));
  log_->Final(result);
  return result;
}

}  // namespace passel::job
