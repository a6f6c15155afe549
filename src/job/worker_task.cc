#include "job/worker_task.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <vector>

#include "base/failpoint.h"
#include "base/log.h"
#include "io/checkpoint_files.h"
#include "job/checkpoint_saver.h"
#include "job/exit_code.h"
#include "job/gpu_compute.h"
#include "job/grace.h"
#include "job/job_entry.h"
#include "job/memory_need.h"
#include "job/remote_job.h"
#include "job/saved_values.h"
#include "job/signals.h"
#include "job/trainer.h"
#include "job/worker_start.h"
#include "shm/attached_job.h"
#include "train/checkpoint_watch.h"
#include "train/hooks.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

// A worker that evaluates waits so long for steps under way; for others that refresh, so much
// longer than it takes until one that stands still is evicted.
constexpr std::chrono::seconds kShadowLimit{60};

// For the last checkpoint.
constexpr std::chrono::seconds kSaveLimit{600};

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

class WorkerTask {
 public:
  WorkerTask(Task& task, JobConfig& config)
      : task_(task),
        config_(config),
        log_(MakeLogLines(config, task.id, task.is_chief)),
        entry_(task, config, log_),
        options_(entry_.options()) {}

  Result<WorkerResult> Run() {
    log_.Task();
    if (!task_.worker_device.empty()) log_.WorkerDevice(task_.worker_device);
    log_.SessionBegins();
    const Deadline start = Deadline::After(options_.start_wait);
    // Before the job waits for this task.
    PASSEL_ASSIGN_OR_RETURN(gpu_, GpuCompute::Open(task_, config_, start));
    Status joined = entry_.Join(gpu_ != nullptr, start);
    if (joined.ok()) joined = entry_.AwaitModel(start);
    if (!joined.ok() && remote() && remote()->Stopped()) joined = Cancelled(joined.message());
    if (joined.code() == Code::kCancelled && remote()) LogInfo("{}", joined.message());
    PASSEL_RETURN_IF_ERROR(joined);
    PASSEL_RETURN_IF_ERROR(PrepareTraining());
    return Train();
  }
  /// CheckpointSaver::hangs(): this task must not be destroyed.
  bool SaveHangs() const { return checkpoints() && checkpoints()->hangs(); }

 private:
  // What it computes with, on the CPU and on its GPU.
  Status PrepareTraining() {
    // The supervisor has asked this for a whole job.
    if (!task_.flags.supervised) PASSEL_RETURN_IF_ERROR(CheckWorkerMemory(config_));
    config_.worker.num_workers = task_.MostTrainers();
    config_.worker.names = task_.Names();
    config_.worker.start_wait = options_.start_wait;
    config_.worker.comes_back = true;
    PASSEL_ASSIGN_OR_RETURN(
        Trainer trainer,
        Trainer::Create(config_, entry_.data(), options_.waits.spin, task_.Trainer(), log_));
    trainer_.emplace(std::move(trainer));
    if (task_.is_chief) {
      const ShardMemory* const lead = remote() ? remote()->LeadHere() : &job()->arena(0).memory();
      // What others count on the host of ps/0 is not known here.
      const std::vector<const WorkerCounters*> own = {&store().counters()};
      trainer_->WriteSummaries(
          config_, lead != nullptr ? CountersOf(*lead) : own, true,
          task_.flags.supervised ? task_.flags.checkpoint_folder : config_.checkpoints.folder);
    }
    if (config_.on_device) PASSEL_RETURN_IF_ERROR(ShareParameters());
    if (gpu_ == nullptr) return {};
    PASSEL_ASSIGN_OR_RETURN(
        engine_, gpu_->MakeEngine(config_, entry_.layout(), trainer_->split().train, *job(),
                                  task_.Trainer()));
    return {};
  }

  Status ShareParameters() {
    DeviceParametersOptions shared;
    shared.chief = task_.is_chief;
    shared.several_gpus = std::min(task_.flags.devices.num_gpus, task_.NumTrainers()) > 1;
    shared.worker = task_.Trainer();
    shared.names = task_.Names();
    shared.shadow_interval = std::chrono::nanoseconds(config_.shadow_interval_ns);
    shared.stall_limit = options_.waits.stall_limit;
    shared.on_stall = options_.waits.on_stall;
    shared.start_wait = options_.start_wait;
    shared.has_checkpoints =
        !config_.checkpoints.folder.empty() || !task_.flags.checkpoint_folder.empty();
    return gpu_->ShareParameters(shared, *job(), store());
  }

  DeviceParameters* parameters() const { return gpu_ ? gpu_->parameters() : nullptr; }

  Result<WorkerResult> Train() {
    WorkerCallbacks callbacks;
    callbacks.check = [this](bool* leave) { return Check(leave); };
    if (parameters() != nullptr) {
      const auto limit = options_.waits.stall_limit + kShadowLimit;
      callbacks.refresh_values = [this, limit] {
        return parameters()->RefreshShadow(Deadline::After(limit));
      };
    }
    bool saved = false;
    const std::unique_ptr<Hook> saver = MakeFinalOps([&](HookContext& context) -> Status {
      // The values are of one round as long as the others wait for this worker.
      saved = remote() != nullptr || IsRoundMode(context.store().mode());
      return saved ? SaveAtEnd() : Status();
    });
    callbacks.hooks.push_back(saver.get());
    g_training.store(true, std::memory_order_relaxed);
    Result<WorkerResult> result =
        trainer_->Run(config_.worker, std::move(callbacks), entry_.layout(), store(), engine_);
    if (!result.ok()) return WithStep(result.status());
    if (!saved) {
      PASSEL_RETURN_IF_ERROR(SaveAtEnd());
      TellOfLastCheckpoint();
    }
    PASSEL_RETURN_IF_ERROR(ps_gone_);
    PASSEL_RETURN_IF_ERROR(not_saved_);
    return result;
  }

  // A ps that has lost its values does not know how far they were, and what that costs.
  Status WithStep(const Status& status) const {
    if (remote() == nullptr || status.code() != Code::kAborted) return status;
    return Aborted(fmt::format("{}; training had reached global step {}", status.message(),
                               store().global_step()));
  }

  // Between two steps.
  Status Check(bool* leave) {
    *leave = g_signal.load(std::memory_order_relaxed) != 0;
    const auto missing = remote() ? remote()->PsMissingFor() : job()->PsMissingFor();
    if (missing.count() > config_.ps_wait_ns && missing.count() > 0) {
      ps_gone_ =
          Unavailable(fmt::format("a ps has been gone for {:.1f} s and none came back: start "
                                  "it and this worker again, or raise --ps_wait",
                                  1e-9 * static_cast<double>(missing.count())));
      // It has all values itself, and perhaps nobody else has: they are saved first.
      *leave = checkpoints() != nullptr && remote() == nullptr;
      if (!*leave) return ps_gone_;
    }
    return parameters() != nullptr ? parameters()->Tend() : Status();
  }

  Status SaveAtEnd() {
    if (checkpoints()) {
      const bool last =
          store().mode() == Mode::kBarrier || store().global_step() >= config_.worker.train_steps;
      const bool asked = g_signal.load(std::memory_order_relaxed) != 0;
      const std::chrono::nanoseconds limit_when_asked = GraceForTasks(task_.flags.grace);
      std::optional<Deadline> late;  // once it is asked to go
      // Others may wait for this worker meanwhile; and what fails here keeps it from nothing else.
      const Status saved = checkpoints()->End(
          last && IsRoundMode(store().mode()) ? AtEnd::kNobodyTrains : AtEnd::kOthersTrain,
          Deadline::After(asked ? limit_when_asked : kSaveLimit), [&] {
            store().SayAlive();
            if (!late && g_signal.load(std::memory_order_relaxed) != 0) {
              late = Deadline::After(limit_when_asked);
            }
            if (late && late->Expired()) checkpoints()->GiveUp();
          });
      if (!saved.ok()) {
        LogError("{}", saved.message());
        not_saved_ = Internal(saved.message());
      }
    }
    return task_.flags.save.empty() || !task_.is_chief ? Status() : Save();
  }

  // The file of the summaries is closed.
  void TellOfLastCheckpoint() const {
    const auto step = checkpoints() ? checkpoints()->last_step() : std::nullopt;
    if (!step) return;
    TellOfCheckpoint(config_.summaries.folder,
                     InFolder(config_.checkpoints.folder, CheckpointName(*step)), *step);
  }

  Status Save() {
    if (remote()) return SaveRemoteValues();
    std::vector<const float*> values;
    for (int shard = 0; shard < options_.num_shards; ++shard) {
      values.push_back(job()->arena(shard).memory().values);
    }
    std::vector<std::vector<RowPart>> parts;
    entry_.layout().Bind(values, &parts);
    const ShardState& state = *job()->arena(0).memory().state;
    const std::int64_t step = config_.on_device
                                  ? state.device.shadow_step.load(std::memory_order_acquire)
                                  : state.global_step.load(std::memory_order_acquire);
    Failpoint("worker.saving");
    PASSEL_RETURN_IF_ERROR(SaveValues(task_.flags.save, config_, parts, step));
    LogInfo("Saved {}", task_.flags.save);
    return {};
  }

  Status SaveRemoteValues() {
    PASSEL_ASSIGN_OR_RETURN(const ParamView view, store().PullLast());
    std::vector<std::vector<RowPart>> parts;
    entry_.layout().Bind(view, &parts);
    PASSEL_RETURN_IF_ERROR(SaveValues(task_.flags.save, config_, parts, store().global_step()));
    LogInfo("Saved {}", task_.flags.save);
    return {};
  }

  shm::AttachedJob* job() const { return entry_.job(); }
  RemoteJob* remote() const { return entry_.remote(); }
  CheckpointSaver* checkpoints() const { return entry_.checkpoints(); }
  ParameterStore& store() const { return entry_.store(); }

  Task& task_;
  JobConfig& config_;
  LogLines log_;
  JobEntry entry_;
  const shm::AttachOptions& options_;
  Status not_saved_;  // the last checkpoint
  Status ps_gone_;    // for good
  // Its engine copies from and to the arenas: it ends before they are unmapped.
  std::unique_ptr<GpuCompute> gpu_;  // null: the CPU computes
  EngineUse engine_;
  std::optional<Trainer> trainer_;
};

}  // namespace

int RunWorkerTask(Task& task, JobConfig& config) {
  for (const int signal : {SIGINT, SIGTERM}) HandleUnlessIgnored(signal, OnSignal);
  auto worker = std::make_unique<WorkerTask>(task, config);
  const Result<WorkerResult> result = worker->Run();
  if (worker->SaveHangs()) (void)worker.release();
  if (!result.ok()) {
    // Stopped before it could begin: the supervisor or the user knows why.
    if (result.status().code() == Code::kCancelled) return kExitInterrupted;
    return FailTask(result.status(), task.flags.error_fd);
  }
  if (result->reason == LeaveReason::kAsked) return ExitCodeOfSignal(g_signal.load());
  return result->reason == LeaveReason::kStopped ? kExitInterrupted : kExitDone;
}

}  // namespace passel::job
