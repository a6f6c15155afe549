#include "job/worker_task.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "compute/cpu_backend.h"
#include "job/devices.h"
#include "job/evaluation_data.h"
#include "job/exit_code.h"
#include "job/gpu_compute.h"
#include "job/memory_need.h"
#include "job/shared_data.h"
#include "job/signals.h"
#include "shm/attached_job.h"
#include "train/saved_model.h"
#include "train/worker_loop.h"

namespace passel {
namespace {

// A worker that evaluates waits so long for steps under way; for others that refresh, so much
// longer than it takes until one that stands still is evicted.
constexpr std::chrono::seconds kShadowLimit{60};

int ExitCodeOfSignal(int signal) { return signal == SIGINT ? kExitInterrupted : kExitRestartMe; }

// Before training there is nothing to finish, and waits for other tasks are long: a signal ends the
// worker at once. Afterwards the first SIGINT or SIGTERM asks to leave after the current step, the
// second ends at once.
std::atomic<bool> g_training{false};
std::atomic<int> g_signal{0};
void OnSignal(int signal) {
  if (!g_training.load(std::memory_order_relaxed)) ::_exit(ExitCodeOfSignal(signal));
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

// `about` gets what is to be told of it, unless a supervisor does.
Result<SharedData> GetData(const Task& task, const JobConfig& config, shm::AttachedJob& job,
                           std::string* about) {
  if (task.flags.data_fd >= 0) return SharedData::Map(FileDescriptor(::dup(task.flags.data_fd)));
  PASSEL_ASSIGN_OR_RETURN(const ChosenData chosen, ChooseData(task.job));
  *about = ToJson(DescribeData(chosen.dir, chosen.options, chosen.key, config));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, job.GetData(chosen.key));
  if (fd) return SharedData::Map(std::move(*fd));
  PASSEL_ASSIGN_OR_RETURN(SharedData data, SharedData::Load(chosen.dir, chosen.options));
  PASSEL_RETURN_IF_ERROR(job.OfferData(chosen.key, data.fd()));
  return data;
}

class WorkerTask {
 public:
  WorkerTask(Task& task, JobConfig& config)
      : task_(task), config_(config), log_(MakeLogLines(config, task.id, task.is_chief)) {}

  Result<WorkerResult> Run() {
    const bool chief = task_.is_chief;
    const int workers = task_.NumTrainers();
    shm::AttachOptions options;
    options.me = {task_.job_id, shm::Role::kWorker, task_.Trainer(), task_.spec.Hash()};
    options.use_existing_servers = task_.flags.existing_servers;
    options.num_shards = task_.spec.num_tasks("ps");
    options.supervised = task_.flags.supervised;
    options.start_limit = std::chrono::nanoseconds(config_.start_wait_ns);
    options.on_waiting = TellsOfWaiting(config_);
    options.engine = MakeEngineOptions(config_, workers, static_cast<int>(UsableCpus().size()));
    options.engine.names = task_.Names();
    log_.Task();
    if (!task_.worker_device.empty()) log_.WorkerDevice(task_.worker_device);
    log_.SessionBegins();
    // Before the job waits for this task.
    const Deadline start = Deadline::After(options.start_limit);
    PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<GpuCompute> gpu,
                            GpuCompute::Open(task_, config_, start));
    std::unique_ptr<shm::AttachedJob> job;
    std::unique_ptr<ParameterStore> store;
    std::optional<SharedData> data;
    nvtx::Range attach_range(nvtx::Event::kAttach, task_.Trainer());
    for (;;) {
      const Status status = Attach(options, &job, &data, &store);
      if (status.ok()) break;
      // A ps died while we spoke to it: its next life, or an error in time, answers.
      if (status.code() != Code::kUnavailable || start.Expired()) return status;
      job.reset();
    }
    attach_range.Close();
    if (task_.flags.existing_servers) {
      for (int ps = 0; ps < options.num_shards; ++ps) {
        log_.ExistingServer(task_.spec.Address({"ps", ps})->ToString());
      }
    }
    if (chief) TellOfJob(config_, *job->arena(0).memory().state);
    PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout,
                            ModelLayout::Make(config_.model, store->variables()));
    if (chief && !store->initialized()) {
      const nvtx::Range range(nvtx::Event::kInitialize, task_.Trainer());
      PASSEL_RETURN_IF_ERROR(InitializeStore(config_.model, layout, *store));
    }
    PASSEL_RETURN_IF_ERROR(AwaitFirstValues(*store, start));
    LogSession(task_, config_);
    log_.SessionComplete();

    // Of a whole job the supervisor has asked it.
    if (!task_.flags.supervised) PASSEL_RETURN_IF_ERROR(CheckWorkerMemory(config_));
    CpuBackendOptions compute;
    compute.threads = config_.threads_per_worker;
    PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, CreateCpuBackend(compute));
    constexpr std::size_t kEvaluationBatch = 500;
    PASSEL_ASSIGN_OR_RETURN(
        const std::unique_ptr<Model> model,
        Model::Create(config_.model, *backend,
                      std::max<std::size_t>(config_.worker.batch_size, kEvaluationBatch)));
    PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<Towers> towers,
                            MakeTowers(config_, options.engine.spin));
    config_.worker.num_workers = workers;
    config_.worker.names = task_.Names();
    config_.worker.start_limit = options.start_limit;
    config_.worker.comes_back = !task_.flags.supervised;
    PASSEL_ASSIGN_OR_RETURN(const DataSplit split, SplitData(config_, data->data()));
    log_.SetStepsPerEpoch(StepsPerEpoch(config_.worker, split.train.size(), task_.Trainer()));
    // Its engine copies from and to the arenas: it ends before they are unmapped.
    const std::unique_ptr<GpuCompute> compute_on_gpu = std::move(gpu);
    EngineUse engine;
    if (config_.on_device) {
      DeviceParametersOptions shared;
      shared.chief = chief;
      shared.several_gpus = std::min(task_.flags.devices.num_gpus, workers) > 1;
      shared.worker = task_.Trainer();
      shared.names = task_.Names();
      shared.shadow_interval = std::chrono::nanoseconds(config_.shadow_interval_ns);
      shared.stall_limit = options.engine.stall_limit;
      shared.on_stall = options.engine.on_stall;
      shared.start_limit = options.start_limit;
      PASSEL_RETURN_IF_ERROR(compute_on_gpu->ShareParameters(shared, *job, *store));
    }
    DeviceParameters* const parameters = compute_on_gpu ? compute_on_gpu->parameters() : nullptr;
    if (compute_on_gpu) {
      PASSEL_ASSIGN_OR_RETURN(
          engine, compute_on_gpu->MakeEngine(config_, layout, split.train, *job, task_.Trainer()));
    }
    // Relaxed: a fact for those who look at the job.
    store->counters().device.store(compute_on_gpu ? 2 : 1, std::memory_order_relaxed);
    WorkerCallbacks callbacks;
    if (towers) {
      callbacks.compute = [&](const Batch& batch, ParameterParts params, GradientParts gradients) {
        return towers->LossAndGradient(batch, params, gradients);
      };
    }
    callbacks.check = [&](bool* leave) -> Status {
      *leave = g_signal.load(std::memory_order_relaxed) != 0;
      const auto missing = job->PsMissingFor();
      if (missing.count() > config_.ps_wait_ns && missing.count() > 0) {
        return Unavailable(
            fmt::format("a ps has been gone for {:.1f} s and none came back: start "
                        "it and this worker again, or raise --ps_wait",
                        1e-9 * static_cast<double>(missing.count())));
      }
      return parameters != nullptr ? parameters->Tend() : Status();
    };
    if (parameters != nullptr) {
      const auto limit = options.engine.stall_limit + kShadowLimit;
      callbacks.refresh_values = [parameters, limit] {
        return parameters->RefreshShadow(Deadline::After(limit));
      };
    }
    const bool saves = !task_.flags.save.empty() && chief;
    bool saved = false;
    if (saves) {
      callbacks.before_leave = [&]() -> Status {
        // The values are of one round as long as the others wait for this worker.
        saved = IsRoundMode(store->mode());
        return saved ? Save(layout, *job) : Status();
      };
    }
    g_training.store(true, std::memory_order_relaxed);
    log_.Follow(&callbacks);
    PASSEL_ASSIGN_OR_RETURN(const WorkerResult result, RunWorker(config_.worker, callbacks, *model,
                                                                 layout, split, *store, engine));
    log_.Final(result);
    if (saves && !saved) PASSEL_RETURN_IF_ERROR(Save(layout, *job));
    return result;
  }

 private:
  Status Attach(const shm::AttachOptions& options, std::unique_ptr<shm::AttachedJob>* job,
                std::optional<SharedData>* data, std::unique_ptr<ParameterStore>* store) {
    PASSEL_ASSIGN_OR_RETURN(*job, shm::AttachedJob::Connect(options, task_.token));
    if (!task_.flags.existing_servers && !server_told_) {
      LogServer(task_, config_);
      server_told_ = true;
    }
    PASSEL_RETURN_IF_ERROR((*job)->WaitForArenas());
    if (!data->has_value()) {
      PASSEL_ASSIGN_OR_RETURN(SharedData loaded, GetData(task_, config_, **job, &about_data_));
      data->emplace(std::move(loaded));
      PASSEL_RETURN_IF_ERROR(FitToData((*data)->data(), task_.NumTrainers(), &config_));
    }
    // Before the chief proposes a plan: who sees values can ask on what they are trained.
    if (!about_data_.empty()) PASSEL_RETURN_IF_ERROR((*job)->TellData(about_data_));
    PASSEL_ASSIGN_OR_RETURN(const StorePlan plan,
                            MakePlan(config_, options.num_shards, task_.NumTrainers()));
    if (task_.flags.devices.log_device_placement) LogDevicePlacement(task_, plan);
    Result<std::unique_ptr<ParameterStore>> opened = (*job)->Open(plan);
    // Here that is no wrong input: training has failed for good.
    if (opened.status().code() == Code::kDataLoss) return Internal(opened.status().message());
    PASSEL_ASSIGN_OR_RETURN(*store, std::move(opened));
    return {};
  }

  Status AwaitFirstValues(ParameterStore& store, Deadline deadline) {
    const nvtx::Range range(nvtx::Event::kAwaitValues, task_.Trainer());
    const std::int64_t begin = MonotonicNs();
    for (;;) {
      const Status status = store.WaitUntilInitialized(deadline.Sooner(std::chrono::seconds(10)));
      if (status.code() != Code::kDeadlineExceeded) return status;
      if (store.initialized()) {  // it waits for others: a change of the mode, a round, slower ones
        if (deadline.Expired()) return status.WithContext("this task cannot begin");
        LogInfo("Waiting for the others to let this task begin: {}", status.message());
        continue;
      }
      if (deadline.Expired()) {
        return DeadlineExceeded(fmt::format(
            "the chief, {}, has not initialised the variables within {:g} s of this task's start "
            "(the last {:.1f} s were spent on waiting for that): start it with the same lists of "
            "hosts, or raise --start_wait",
            task_.Names().chief_name, 1e-9 * static_cast<double>(config_.start_wait_ns),
            1e-9 * static_cast<double>(MonotonicNs() - begin)));
      }
      LogInfo("Waiting for model to be ready. {} has not initialised the variables yet",
              task_.Names().chief_name);
    }
  }

  Status Save(const ModelLayout& layout, const shm::AttachedJob& job) {
    std::vector<const float*> values;
    for (int shard = 0; shard < layout.table().shards(); ++shard) {
      values.push_back(job.arena(shard).memory().values);
    }
    std::vector<std::vector<RowPart>> parts;
    layout.Bind(values, &parts);
    const ShardState& state = *job.arena(0).memory().state;
    const std::int64_t step = config_.on_device
                                  ? state.device.shadow_step.load(std::memory_order_acquire)
                                  : state.global_step.load(std::memory_order_acquire);
    std::map<std::string, std::string> metadata = {{"global_step", std::to_string(step)}};
    AddSplit({config_.validation_size, config_.train_examples}, &metadata);
    Failpoint("worker.saving");
    PASSEL_RETURN_IF_ERROR(SaveModel(task_.flags.save, config_.model, parts, metadata));
    LogInfo("Saved {}", task_.flags.save);
    return {};
  }

  Task& task_;
  JobConfig& config_;
  LogLines log_;
  bool server_told_ = false;
  std::string about_data_;  // ToJson(JobData); empty under a supervisor
};

}  // namespace

int RunWorkerTask(Task& task, JobConfig& config) {
  for (const int signal : {SIGINT, SIGTERM}) HandleUnlessIgnored(signal, OnSignal);
  const Result<WorkerResult> result = WorkerTask(task, config).Run();
  if (!result.ok()) {
    // Stopped before it could begin: the supervisor or the user knows why.
    if (result.status().code() == Code::kCancelled) return kExitInterrupted;
    return FailTask(result.status(), task.flags.error_fd);
  }
  if (result->reason == LeaveReason::kAsked) return ExitCodeOfSignal(g_signal.load());
  return result->reason == LeaveReason::kStopped ? kExitInterrupted : kExitDone;
}

}  // namespace passel
