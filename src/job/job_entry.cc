#include "job/job_entry.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_settings.h"
#include "job/devices.h"
#include "job/first_values.h"
#include "job/memory_need.h"
#include "job/remote_facts.h"
#include "job/worker_start.h"

namespace passel::job {
namespace {

// Until a worker looks again whether the chief has gone back to a checkpoint.
constexpr std::chrono::milliseconds kLostPause{200};

}  // namespace

JobEntry::JobEntry(const Task& task, JobConfig& config, LogLines& log)
    : task_(task),
      config_(config),
      log_(log),
      options_(AttachOptionsOf(task, config)),
      resume_from_(task.flags.resume_from) {}

Status JobEntry::Join(bool has_gpu, Deadline start) {
  const nvtx::Range range(nvtx::Event::kAttach, task_.Trainer());
  if (task_.several_hosts && !supervised()) {
    PASSEL_ASSIGN_OR_RETURN(remote_,
                            RemoteJob::ConnectIfElsewhere(
                                task_, {options_, std::chrono::nanoseconds(config_.ps_wait_ns)}));
    if (remote_) return JoinElsewhere(has_gpu, start);
  }
  for (;;) {
    const Status status = Attach();
    if (status.ok()) break;
    if (status.code() == Code::kInternal && !task_.is_chief) return GiveUp(status);
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

// By messages.
Status JobEntry::JoinElsewhere(bool has_gpu, Deadline start) {
  PASSEL_RETURN_IF_ERROR(CheckRemote(task_, config_, has_gpu, *remote_));
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
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanOfJob());
  PASSEL_RETURN_IF_ERROR(AgreeElsewhere(plan, start));
  if (task_.is_chief) {
    PASSEL_RETURN_IF_ERROR(remote_->TellTarget(TargetOf(config_)));
  }
  Result<std::unique_ptr<ParameterStore>> opened = remote_->Open(plan, config_.prefetch);
  if (opened.status().code() == Code::kDataLoss) {
    return GiveUp(JobIsLost(opened.status(), config_.checkpoints.folder));
  }
  PASSEL_ASSIGN_OR_RETURN(store_, std::move(opened));
  return task_.is_chief && !store_->initialized() ? ChooseRemoteBeginning(plan) : Status();
}

Status JobEntry::AgreeElsewhere(const StorePlan& plan, Deadline start) {
  for (;;) {
    const Status agreed = remote_->AgreeOnPlan(plan);
    const Status lost = agreed.ok() ? remote_->CheckOneBeginning() : agreed;
    if (lost.ok()) return {};
    const Status back = agreed.ok() && lost.code() == Code::kDataLoss ? GoBack(plan, lost) : lost;
    if (back.code() == Code::kInternal && !task_.is_chief) return GiveUp(back);
    if (back.code() != Code::kUnavailable || start.Expired()) return back;
    std::this_thread::sleep_for(kLostPause);
  }
}

// The ps save to the folder: this task has it only until it knows with what to begin.
Status JobEntry::ChooseRemoteBeginning(const StorePlan& plan) {
  const std::string& folder = config_.checkpoints.folder;
  if (!folder.empty()) PASSEL_RETURN_IF_ERROR(remote_->CheckFolder(folder));
  PASSEL_ASSIGN_OR_RETURN(const auto beginning, OpenCheckpoints(plan, /*begun=*/false));
  beginning->TellOfBeginning();
  resume_from_ = beginning->resume_from();
  return {};
}

Result<StorePlan> JobEntry::PlanOfJob() {
  PASSEL_ASSIGN_OR_RETURN(StorePlan plan, MakePlan(config_, options_.num_shards,
                                                   task_.NumTrainers(), task_.MostTrainers()));
  if (task_.flags.devices.log_device_placement) LogDevicePlacement(task_, plan);
  return plan;
}

Status JobEntry::Attach() {
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
  PASSEL_ASSIGN_OR_RETURN(const StorePlan plan, PlanOfJob());
  // What is wrong with them is said before the job begins.
  if (task_.is_chief && !supervised() && !checkpoints_) {
    if (!job_->has_arenas()) {
      PASSEL_RETURN_IF_ERROR(
          CheckSaveMemory(plan, config_, [this](int shard) { return job_->has_arena(shard); }));
    }
    PASSEL_ASSIGN_OR_RETURN(checkpoints_, OpenCheckpoints(plan, /*begun=*/HaveValues()));
  }
  Result<std::unique_ptr<ParameterStore>> opened = job_->Open(plan);
  if (opened.status().code() == Code::kDataLoss) return GoBack(plan, opened.status());
  PASSEL_ASSIGN_OR_RETURN(store_, std::move(opened));
  return {};
}

Result<std::unique_ptr<CheckpointSaver>> JobEntry::OpenCheckpoints(const StorePlan& plan,
                                                                   bool begun) {
  config_.checkpoints.job = task_.job_id;
  return CheckpointSaver::Open(config_, task_.job, plan, about_data_, begun);
}

// A ps has lost its values, others have not. From a checkpoint all begin anew, in new arenas; the
// chief knows whether there is one. kUnavailable: attach again.
Status JobEntry::GoBack(const StorePlan& plan, const Status& loss) {
  const std::string& folder = config_.checkpoints.folder;
  if (supervised()) return JobIsLost(loss, folder);
  const bool first = !std::exchange(values_lost_, true);
  const auto await = [&](const std::string& what) {
    if (first) LogWarning("{}: {}", loss.message(), what);
    return Unavailable(fmt::format("{}: {}", loss.message(), what));
  };
  if (!task_.is_chief) {
    return await(
        fmt::format("waiting for the chief, {}, which goes back to a checkpoint or gives "
                    "the job up",
                    task_.Names().chief_name));
  }
  const auto index = ReadCheckpointIndex(folder);
  // That is no wrong input: training has failed for good.
  if (folder.empty() || !index.ok() || index->kept.empty()) {
    return GiveUp(JobIsLost(loss, folder));
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

// The chief tells the ps why the job is lost, and they tell other workers, who say that they have
// heard it.
Status JobEntry::GiveUp(const Status& lost) {
  if (supervised()) return lost;
  if (job_) job_->GiveUp(lost.message());
  if (remote_) remote_->GiveUp(lost.message());
  return lost;
}

Status JobEntry::AwaitModel(Deadline start) {
  PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout,
                          ModelLayout::Make(config_.model, store_->variables()));
  layout_.emplace(layout);
  if (task_.is_chief && !store_->initialized()) {
    const nvtx::Range range(nvtx::Event::kInitialize, task_.Trainer());
    if (checkpoints_) checkpoints_->TellOfBeginning();
    PASSEL_RETURN_IF_ERROR(
        WriteFirstValues(config_, checkpoints_ ? checkpoints_->resume_from() : resume_from_, layout,
                         config_.optimizer, options_.num_shards, *store_));
  }
  PASSEL_RETURN_IF_ERROR(AwaitFirstValues(task_, config_, start, *store_));
  if (checkpoints_) BeginCheckpoints();
  LogSession(task_, config_);
  log_.SessionComplete();
  return {};
}

bool JobEntry::HaveValues() const {
  if (!job_->has_arenas()) return false;
  for (int shard = 0; shard < options_.num_shards; ++shard) {
    const ShardState& state = *job_->arena(shard).memory().state;
    if (state.initialized.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

void JobEntry::BeginCheckpoints() {
  std::vector<ShardMemory> shards;
  for (int shard = 0; shard < options_.num_shards; ++shard) {
    shards.push_back(job_->arena(shard).memory());
  }
  checkpoints_->Begin(std::move(shards), task_.Names());
}

}  // namespace passel::job
