#include "tools/passel/single_process.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "compute/cpu_backend.h"
#include "shm/job_status.h"
#include "tools/passel/commands.h"
#include "tools/passel/exit_code.h"
#include "tools/passel/gpu_compute.h"
#include "train/worker_loop.h"

#include <csignal>

namespace passel {

SingleProcessJob::SingleProcessJob(const JobConfig& config, const StorePlan& plan,
                                   const ModelLayout& layout, const SharedData& data,
                                   SignalEvents& signals)
    : config_(config), plan_(plan), layout_(layout), data_(data), signals_(signals) {}

std::vector<const float*> SingleProcessJob::values() const { return {arena_->shard(0).values}; }

Status SingleProcessJob::Run(Progress& progress, JobReport* report) {
  LogInfo("Running single-machine training");
  WarnOfGpuSettings(config_);
  nvtx::NameThread("worker/0");
  PASSEL_ASSIGN_OR_RETURN(arena_, InProcessArena::Create(plan_));
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<ParameterStore> store,
                          arena_->Open(0, MakeEngineOptions(config_, 1, 1)));
  PASSEL_RETURN_IF_ERROR(InitializeStore(config_.model, layout_, *store));
  store->counters().device.store(1, std::memory_order_relaxed);  // the CPU
  CpuBackendOptions compute;
  compute.threads = config_.threads_per_worker;
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend(compute));
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                          Model::Create(config_.model, *backend,
                                        std::max<std::size_t>(config_.worker.batch_size, 500)));
  int signal = 0;
  PASSEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Towers> towers,
      MakeTowers(config_,
                 MakeEngineOptions(config_, 1, static_cast<int>(UsableCpus().size())).spin));
  WorkerCallbacks callbacks;
  if (towers) {
    callbacks.compute = [&](const Batch& batch, ParameterParts params, GradientParts gradients) {
      return towers->LossAndGradient(batch, params, gradients);
    };
  }
  std::int64_t next_look_ns = 0;
  callbacks.check = [&](bool* leave) -> Status {
    const std::int64_t now = MonotonicNs();
    if (now < next_look_ns) return {};
    next_look_ns = now + 20'000'000;
    if (const int next = signals_.Next(); next != 0) signal = next;
    *leave = signal != 0;
    progress.Update(shm::ReadJobStatus(arena_->shard(0)));
    return {};
  };
  PASSEL_ASSIGN_OR_RETURN(const DataSplit split, SplitData(config_, data_.data()));
  LogLines log = MakeLogLines(config_, {"worker", 0}, true);
  log.SetStepsPerEpoch(StepsPerEpoch(config_.worker, split.train.size(), 0));
  if (config_.log_style != LogStyle::kNone) {
    callbacks.on_step = [&](const StepReport& step) { log.Step(step, WallSeconds()); };
    callbacks.on_evaluation = [&](std::int64_t, const TestResult& r) { log.Evaluation(r); };
  }
  log.Task();
  log.WorkerDevice("/cpu:0");
  log.TrainingBegins(WallSeconds());
  const std::int64_t begin = MonotonicNs();
  callbacks.on_training_end = [&] {
    log.TrainingEnds(WallSeconds(), 1e-9 * static_cast<double>(MonotonicNs() - begin));
  };
  PASSEL_ASSIGN_OR_RETURN(const WorkerResult result,
                          RunWorker(config_.worker, callbacks, *model, layout_, split, *store));
  log.Final(result);
  report->status = shm::ReadJobStatus(arena_->shard(0));
  const std::int64_t first = report->status.workers[0].first_step_ns;
  if (first != 0) report->startup_seconds = 1e-9 * static_cast<double>(first - g_program_start_ns);
  report->interrupted = result.reason == LeaveReason::kAsked;
  if (report->interrupted) {
    report->exit_code = signal == SIGINT ? kExitInterrupted : kExitRestartMe;
    report->notes.push_back("ended by " + SignalName(signal));
  }
  report->worker_exits = {"exited with 0"};
  return {};
}

}  // namespace passel
