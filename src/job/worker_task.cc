#include "job/worker_task.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/counted.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_saver.h"
#include "job/checkpoint_settings.h"
#include "job/devices.h"
#include "job/exit_code.h"
#include "job/first_values.h"
#include "job/gpu_compute.h"
#include "job/memory_need.h"
#include "job/remote_facts.h"
#include "job/remote_job.h"
#include "job/saved_values.h"
#include "job/shared_data.h"
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

// Until a worker looks again whether the chief has gone back to a checkpoint.
constexpr std::chrono::milliseconds kLostPause{200};

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
        options_(AttachOptionsOf(task, config)) {}

  Result<WorkerResult> Run() {
    log_.Task();
    if (!task_.worker_device.empty()) log_.WorkerDevice(task_.worker_device);
    log_.SessionBegins();
    const Deadline start = Deadline::After(options_.start_wait);
    // Before the job waits for this task.
    PASSEL_ASSIGN_OR_RETURN(gpu_, GpuCompute::Open(task_, config_, start));
    Status joined = JoinJob(start);
    if (joined.ok()) joined = AwaitModel(start);
    if (!joined.ok() && remote_ && remote_->Stopped()) joined = Cancelled(joined.message());
    if (joined.code() == Code::kCancelled && remote_) LogInfo("{}", joined.message());
    PASSEL_RETURN_IF_ERROR(joined);
    PASSEL_RETURN_IF_ERROR(PrepareTraining());
    return Train();
  }
  /// CheckpointSaver::hangs(): this task must not be destroyed.
  bool SaveHangs() const { return checkpoints_ && checkpoints_->hangs(); }

 private:
  // Meets the ps tasks, gets the data, has a store.
  Status JoinJob(Deadline start) {
    const nvtx::Range range(nvtx::Event::kAttach, task_.Trainer());
    if (task_.several_hosts && !supervised()) {
      PASSEL_ASSIGN_OR_RETURN(remote_,
                              RemoteJob::ConnectIfElsewhere(
                                  task_, {options_, std::chrono::nanoseconds(config_.ps_wait_ns)}));
      if (remote_) return JoinRemoteJob(start);
    }
    for (;;) {
      const Status status = Attach();
      if (status.ok()) break;
      // A ps died while we spoke to it: its next life, or an error in time, answers.
      if (status.code() != Code::kUnavailable || start.Expired()) return status;
      job_.reset();
      if (values_lost_) std::this_thread::sleep_for(kLostPause);
    }
    if (task_.flags.existing_servers) {
      for (int ps = 0; ps < options_.num_shards; ++ps) {
        log_.ExistingServer(task_.spec.Address({"ps", ps})->ToString());
      }
    }
    if (task_.is_chief) TellOfJob(TargetOf(config_), *job_->arena(0).memory().state);
    if (task_.is_chief && config_.prefetch) {
      LogInfo("--prefetch has no effect here: {} shares the memory of all ps, and nothing travels",
              task_.Names().chief_name);
    }
    return {};
  }

  // The same by messages.
  Status JoinRemoteJob(Deadline start) {
    PASSEL_RETURN_IF_ERROR(CheckRemote(task_, config_, gpu_ != nullptr, *remote_));
    gpu_.reset();
    LogServer(task_, config_);
    const std::string who = task_.Names()(task_.Trainer());
    LogInfo("{} is on another host than {}: parameters travel {}", who, remote_->Elsewhere(),
            HowItTravels(task_));
    if (!remote_->Here().empty()) LogInfo("{} shares the memory of {}", who, remote_->Here());
    WarnOfClearText(task_);
    PASSEL_ASSIGN_OR_RETURN(const ChosenData chosen, ChooseData(task_.job));
    PASSEL_ASSIGN_OR_RETURN(SharedData loaded, SharedData::Load(chosen.dir, chosen.options));
    data_.emplace(std::move(loaded));
    PASSEL_RETURN_IF_ERROR(FitToData(data_->data(), task_.MostTrainers(), &config_));
    PASSEL_RETURN_IF_ERROR(remote_->TellData(ToJson(DescribeData(chosen, data_->data(), config_))));
    PASSEL_ASSIGN_OR_RETURN(
        const StorePlan plan,
        MakePlan(config_, options_.num_shards, task_.NumTrainers(), task_.MostTrainers()));
    if (task_.flags.devices.log_device_placement) LogDevicePlacement(task_, plan);
    for (;;) {
      const Status agreed = remote_->AgreeOnPlan(plan);
      const Status lost = agreed.ok() ? remote_->CheckOneBeginning() : agreed;
      if (lost.ok()) break;
      const Status back = agreed.ok() && lost.code() == Code::kDataLoss ? GoBack(plan, lost) : lost;
      if (back.code() != Code::kUnavailable || start.Expired()) return back;
      std::this_thread::sleep_for(kLostPause);
    }
    if (task_.is_chief) {
      PASSEL_RETURN_IF_ERROR(remote_->TellTarget(TargetOf(config_)));
    }
    Result<std::unique_ptr<ParameterStore>> opened = remote_->Open(plan, config_.prefetch);
    if (opened.status().code() == Code::kDataLoss) return CannotGoBack(opened.status());
    PASSEL_ASSIGN_OR_RETURN(store_, std::move(opened));
    return task_.is_chief && !store_->initialized() ? ChooseRemoteBeginning(plan) : Status();
  }

  // The ps save to the folder: this task has it only until it knows with what to begin.
  Status ChooseRemoteBeginning(const StorePlan& plan) {
    const std::string& folder = config_.checkpoints.folder;
    if (!folder.empty()) PASSEL_RETURN_IF_ERROR(remote_->CheckFolder(folder));
    PASSEL_ASSIGN_OR_RETURN(const auto beginning, OpenCheckpoints(plan, /*begun=*/false));
    beginning->TellOfBeginning();
    resume_from_ = beginning->resume_from();
    return {};
  }

  Status Attach() {
    PASSEL_ASSIGN_OR_RETURN(job_, shm::AttachedJob::Connect(options_, task_.token));
    if (!task_.flags.existing_servers && !server_told_) {
      LogServer(task_, config_);
      server_told_ = true;
    }
    PASSEL_RETURN_IF_ERROR(job_->WaitForArenas());
    if (!data_.has_value()) {
      PASSEL_ASSIGN_OR_RETURN(SharedData loaded, GetData(task_, config_, *job_, &about_data_));
      data_.emplace(std::move(loaded));
      PASSEL_RETURN_IF_ERROR(FitToData(data_->data(), task_.MostTrainers(), &config_));
    }
    // Before the chief proposes a plan: who sees values can ask on what they are trained.
    if (!about_data_.empty()) PASSEL_RETURN_IF_ERROR(job_->TellData(about_data_));
    PASSEL_ASSIGN_OR_RETURN(
        const StorePlan plan,
        MakePlan(config_, options_.num_shards, task_.NumTrainers(), task_.MostTrainers()));
    if (task_.flags.devices.log_device_placement) LogDevicePlacement(task_, plan);
    // What is wrong with them is said before the job begins.
    if (task_.is_chief && !supervised() && !checkpoints_) {
      PASSEL_ASSIGN_OR_RETURN(checkpoints_, OpenCheckpoints(plan, /*begun=*/HaveValues()));
    }
    Result<std::unique_ptr<ParameterStore>> opened = job_->Open(plan);
    if (opened.status().code() == Code::kDataLoss) return GoBack(plan, opened.status());
    PASSEL_ASSIGN_OR_RETURN(store_, std::move(opened));
    return {};
  }

  Result<std::unique_ptr<CheckpointSaver>> OpenCheckpoints(const StorePlan& plan, bool begun) {
    config_.checkpoints.job = task_.job_id;
    return CheckpointSaver::Open(config_, task_.job, plan, about_data_, begun);
  }

  // A ps has lost its values, others have not. From a checkpoint all begin anew, in new arenas.
  // kUnavailable: attach again. Without one that is no wrong input: training has failed for good.
  Status GoBack(const StorePlan& plan, const Status& loss) {
    const auto index = ReadCheckpointIndex(config_.checkpoints.folder);
    const bool none =
        config_.checkpoints.folder.empty() || !index.ok() || index->kept.empty() || supervised();
    // A worker of another host need not see the folder.
    if (none && (task_.is_chief || !remote_)) return CannotGoBack(loss);
    const bool first = !std::exchange(values_lost_, true);
    const auto await = [&](const std::string& what) {
      if (first) LogWarning("{}: {}", loss.message(), what);
      return Unavailable(fmt::format("{}: {}", loss.message(), what));
    };
    if (!task_.is_chief) {
      return await("waiting for " + task_.Names().chief_name + " to go back to a checkpoint");
    }
    if (first) {
      // What it was told to begin with is older than what it has saved since.
      config_.checkpoints.resume = kResumeAuto;
      checkpoints_.reset();
    }
    if (first && !remote_) {
      PASSEL_ASSIGN_OR_RETURN(checkpoints_, OpenCheckpoints(plan, /*begun=*/false));
    }
    const std::int64_t before = remote_ ? remote_->StepsLeft() : job_->StepsLeft();
    const std::int64_t step = remote_ ? StepOfCheckpoint(index->kept.back().name).value_or(0)
                                      : checkpoints_->resumed_step();
    // On several hosts ps/0, which has the folder, lets go of it with its arena.
    const Status renewed = remote_ ? remote_->Renew(plan) : job_->Renew(plan);
    if (renewed.code() == Code::kFailedPrecondition) return await(renewed.message());
    if (!renewed.ok()) return renewed;
    LogWarning(
        "{}: all ps go back from global step {} to {} ({}), which costs {}", loss.message(), before,
        step, CheckpointName(step),
        Counted(static_cast<std::uint64_t>(std::max<std::int64_t>(0, before - step)), "update"));
    return Unavailable("the arenas are made anew");
  }

  static Status CannotGoBack(const Status& loss) {
    return Internal(loss.message() + ": end all tasks of this job and start it anew");
  }

  // The chief writes the first values, the others wait for them.
  Status AwaitModel(Deadline start) {
    PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout,
                            ModelLayout::Make(config_.model, store_->variables()));
    layout_.emplace(layout);
    if (task_.is_chief && !store_->initialized()) {
      const nvtx::Range range(nvtx::Event::kInitialize, task_.Trainer());
      if (checkpoints_) checkpoints_->TellOfBeginning();
      PASSEL_RETURN_IF_ERROR(
          WriteFirstValues(config_, checkpoints_ ? checkpoints_->resume_from() : resume_from_,
                           layout, config_.optimizer, options_.num_shards, *store_));
    }
    PASSEL_RETURN_IF_ERROR(AwaitFirstValues(task_, config_, start, *store_));
    if (checkpoints_) BeginCheckpoints();
    LogSession(task_, config_);
    log_.SessionComplete();
    return {};
  }

  bool supervised() const { return task_.flags.supervised; }
  bool HaveValues() const {
    if (!job_->has_arenas()) return false;
    for (int shard = 0; shard < options_.num_shards; ++shard) {
      const ShardState& state = *job_->arena(shard).memory().state;
      if (state.initialized.load(std::memory_order_acquire) == 0) return false;
    }
    return true;
  }

  void BeginCheckpoints() {
    std::vector<ShardMemory> shards;
    for (int shard = 0; shard < options_.num_shards; ++shard) {
      shards.push_back(job_->arena(shard).memory());
    }
    checkpoints_->Begin(std::move(shards), task_.Names());
  }

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
        Trainer::Create(config_, data_->data(), options_.waits.spin, task_.Trainer(), log_));
    trainer_.emplace(std::move(trainer));
    if (task_.is_chief && !remote_) {
      trainer_->WriteSummaries(
          config_, job_->arena(0).memory(), true,
          task_.flags.supervised ? task_.flags.checkpoint_folder : config_.checkpoints.folder);
    }
    if (config_.on_device) PASSEL_RETURN_IF_ERROR(ShareParameters());
    if (gpu_ == nullptr) return {};
    PASSEL_ASSIGN_OR_RETURN(engine_, gpu_->MakeEngine(config_, *layout_, trainer_->split().train,
                                                      *job_, task_.Trainer()));
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
    return gpu_->ShareParameters(shared, *job_, *store_);
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
      saved = remote_ != nullptr || IsRoundMode(context.store().mode());
      return saved ? SaveAtEnd() : Status();
    });
    callbacks.hooks.push_back(saver.get());
    g_training.store(true, std::memory_order_relaxed);
    PASSEL_ASSIGN_OR_RETURN(
        const WorkerResult result,
        trainer_->Run(config_.worker, std::move(callbacks), *layout_, *store_, engine_));
    if (!saved) {
      PASSEL_RETURN_IF_ERROR(SaveAtEnd());
      TellOfLastCheckpoint();
    }
    PASSEL_RETURN_IF_ERROR(not_saved_);
    return result;
  }

  // Between two steps.
  Status Check(bool* leave) {
    *leave = g_signal.load(std::memory_order_relaxed) != 0;
    const auto missing = remote_ ? remote_->PsMissingFor() : job_->PsMissingFor();
    if (missing.count() > config_.ps_wait_ns && missing.count() > 0) {
      return Unavailable(
          fmt::format("a ps has been gone for {:.1f} s and none came back: start "
                      "it and this worker again, or raise --ps_wait",
                      1e-9 * static_cast<double>(missing.count())));
    }
    return parameters() != nullptr ? parameters()->Tend() : Status();
  }

  Status SaveAtEnd() {
    if (checkpoints_) {
      const bool last =
          store_->mode() == Mode::kBarrier || store_->global_step() >= config_.worker.train_steps;
      const bool asked = g_signal.load(std::memory_order_relaxed) != 0;
      std::optional<Deadline> late;  // once it is asked to go
      // Others may wait for this worker meanwhile; and what fails here keeps it from nothing else.
      const Status saved = checkpoints_->End(
          last && IsRoundMode(store_->mode()) ? AtEnd::kNobodyTrains : AtEnd::kOthersTrain,
          Deadline::After(asked ? kSaveLimitWhenAsked : kSaveLimit), [&] {
            store_->SayAlive();
            if (!late && g_signal.load(std::memory_order_relaxed) != 0) {
              late = Deadline::After(kSaveLimitWhenAsked);
            }
            if (late && late->Expired()) checkpoints_->GiveUp();
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
    const auto step = checkpoints_ ? checkpoints_->last_step() : std::nullopt;
    if (!step) return;
    TellOfCheckpoint(config_.summaries.folder,
                     InFolder(config_.checkpoints.folder, CheckpointName(*step)), *step);
  }

  Status Save() {
    if (remote_) return SaveRemoteValues();
    std::vector<const float*> values;
    for (int shard = 0; shard < options_.num_shards; ++shard) {
      values.push_back(job_->arena(shard).memory().values);
    }
    std::vector<std::vector<RowPart>> parts;
    layout_->Bind(values, &parts);
    const ShardState& state = *job_->arena(0).memory().state;
    const std::int64_t step = config_.on_device
                                  ? state.device.shadow_step.load(std::memory_order_acquire)
                                  : state.global_step.load(std::memory_order_acquire);
    Failpoint("worker.saving");
    PASSEL_RETURN_IF_ERROR(SaveValues(task_.flags.save, config_, parts, step));
    LogInfo("Saved {}", task_.flags.save);
    return {};
  }

  Status SaveRemoteValues() {
    PASSEL_ASSIGN_OR_RETURN(const ParamView view, store_->PullLast());
    std::vector<std::vector<RowPart>> parts;
    layout_->Bind(view, &parts);
    PASSEL_RETURN_IF_ERROR(SaveValues(task_.flags.save, config_, parts, store_->global_step()));
    LogInfo("Saved {}", task_.flags.save);
    return {};
  }

  Task& task_;
  JobConfig& config_;
  LogLines log_;
  const shm::AttachOptions options_;
  bool server_told_ = false;
  std::string about_data_;  // ToJson(JobData); empty under a supervisor
  std::unique_ptr<shm::AttachedJob> job_;
  std::unique_ptr<RemoteJob> remote_;  // in its place: some ps are on other hosts
  bool values_lost_ = false;           // of a ps; the chief goes back to a checkpoint
  std::string resume_from_ = task_.flags.resume_from;
  Status not_saved_;                              // the last checkpoint
  std::unique_ptr<CheckpointSaver> checkpoints_;  // of the chief; null under a supervisor
  std::unique_ptr<ParameterStore> store_;
  std::optional<SharedData> data_;
  std::optional<ModelLayout> layout_;
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
