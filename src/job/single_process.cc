#include "job/single_process.h"

#include <fmt/core.h>

#include <csignal>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "job/exit_code.h"
#include "job/first_values.h"
#include "job/gpu_compute.h"
#include "job/job_status.h"
#include "job/trainer.h"
#include "store/open_store.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

constexpr std::int64_t kLookEveryNs = 20'000'000;

}  // namespace

SingleProcessJob::SingleProcessJob(const JobConfig& config, const StorePlan& plan,
                                   const ModelLayout& layout, const SharedData& data,
                                   const std::string& about_data, SignalEvents& signals)
    : config_(config),
      plan_(plan),
      layout_(layout),
      data_(data),
      about_data_(about_data),
      signals_(signals) {}

SingleProcessJob::~SingleProcessJob() = default;

Status SingleProcessJob::Run(CheckpointSaver& checkpoints, Progress& progress, JobReport* report) {
  LogInfo("Running single-machine training");
  LogInfo("job {}: one process, mode {}, {} parameters", report->job_id, report->mode,
          plan_.variables.TotalElements());
  WarnOfGpuSettings(config_);
  nvtx::NameThread("worker/0");
  PASSEL_ASSIGN_OR_RETURN(arena_,
                          OwnArena::Make(report->job_id, plan_, config_.huge_pages, about_data_));
  PASSEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ParameterStore> store,
      OpenStore(plan_, {&arena_->memory(), 1}, 0, SelfIdentity(), MakeWaitOptions(config_, 1, 1)));
  TellOfJob(TargetOf(config_), *arena_->memory().state);
  const Status status = Train(*store, checkpoints, progress, report);
  report->TakeStatus(ReadJobStatus(arena_->memory()));
  if (!status.ok() && status.code() != Code::kDiverged && report->status.local_steps == 0) {
    return status;
  }
  if (!status.ok()) {
    LogError("{}", status.message());
    report->notes.push_back(status.message());
    report->exit_code = ExitCodeFor(status);
  }
  report->worker_exits = {fmt::format("exited with {}", report->exit_code)};
  return {};
}

Status SingleProcessJob::Train(ParameterStore& store, CheckpointSaver& checkpoints,
                               Progress& progress, JobReport* report) {
  LogLines log = MakeLogLines(config_, {"worker", 0}, true);
  log.Task();
  log.WorkerDevice("/cpu:0");
  log.SessionBegins();
  PASSEL_RETURN_IF_ERROR(
      WriteFirstValues(config_, checkpoints.resume_from(), layout_, plan_.optimizer, 1, store));
  checkpoints.Begin({arena_->memory()}, WorkerNames{});
  log.SessionComplete();
  const int cores = static_cast<int>(UsableCpus().size());
  PASSEL_ASSIGN_OR_RETURN(
      Trainer trainer,
      Trainer::Create(config_, data_.data(), MakeWaitOptions(config_, 1, cores).spin, 0, log));
  trainer.WriteSummaries(config_, CountersOf(arena_->memory()), false, config_.checkpoints.folder);
  WorkerCallbacks callbacks;
  int signal = 0;
  std::int64_t next_look_ns = 0;
  callbacks.check = [&](bool* leave) -> Status {
    *leave = signal != 0;
    const std::int64_t now = MonotonicNs();
    if (now < next_look_ns) return {};
    next_look_ns = now + kLookEveryNs;
    if (const int next = signals_.Next(); next != 0) signal = next;
    *leave = signal != 0;
    progress.Update(ReadJobStatus(arena_->memory()));
    return {};
  };
  PASSEL_ASSIGN_OR_RETURN(const WorkerResult result,
                          trainer.Run(config_.worker, std::move(callbacks), layout_, store));
  if (config_.worker.evaluation_set == EvaluationSet::kTest) report->test = result.evaluation;
  if (result.reason == LeaveReason::kStepsReached || result.reason == LeaveReason::kHook) return {};
  report->interrupted = true;
  if (result.reason == LeaveReason::kStopped) {
    report->exit_code = kExitInterrupted;
    report->notes.emplace_back("the job was stopped on request");
  } else {
    report->exit_code = signal == SIGINT ? kExitInterrupted : kExitRestartMe;
    report->notes.push_back("ended by " + SignalName(signal));
  }
  return {};
}

}  // namespace passel::job
