#include "job/single_process.h"

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "base/nvtx.h"
#include "base/subprocess.h"
#include "cluster/endpoint.h"
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

shm::PsHostOptions OptionsOf(const std::string& job_id, const std::string& about_data) {
  shm::PsHostOptions options;
  options.me = {.job_id = job_id, .role = Role::kPs};
  options.supervised = true;  // by us: it serves until we end it
  options.alone = true;
  options.data = about_data;
  options.describe = DescribeJob;
  return options;
}

}  // namespace

class SingleProcessJob::Host {
 public:
  // A token that nobody knows: nobody can join.
  Host(const std::string& job_id, const std::string& about_data, FileDescriptor listening,
       shm::Arena arena)
      : end_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        host_(OptionsOf(job_id, about_data), JobToken::Generate(), std::move(listening),
              std::move(arena)),
        thread_([this] {
          nvtx::NameThread("control");
          host_.Serve(end_.get());
        }) {}

  ~Host() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(end_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  FileDescriptor end_;  // readable: the thread is to end
  shm::PsHost host_;
  std::thread thread_;  // last: it uses both
};

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

Status SingleProcessJob::MakeArena(const std::string& job_id) {
  PASSEL_ASSIGN_OR_RETURN(FileDescriptor listening, Listen(job_id, Role::kPs, 0));
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  PASSEL_ASSIGN_OR_RETURN(
      shm::Arena arena,
      shm::Arena::Create(plan_, 0, {.job_id = job_id, .huge_pages = config_.huge_pages}, budget));
  arena.Publish();
  if (!arena.huge_page_report().empty()) LogInfo("{}", arena.huge_page_report());
  memory_ = arena.memory();
  host_ = std::make_unique<Host>(job_id, about_data_, std::move(listening), std::move(arena));
  return {};
}

Status SingleProcessJob::Run(CheckpointSaver& checkpoints, Progress& progress, JobReport* report) {
  LogInfo("Running single-machine training");
  LogInfo("job {}: one process, mode {}, {} parameters", report->job_id, report->mode,
          plan_.variables.TotalElements());
  WarnOfGpuSettings(config_);
  nvtx::NameThread("worker/0");
  PASSEL_RETURN_IF_ERROR(MakeArena(report->job_id));
  PASSEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ParameterStore> store,
      OpenStore(plan_, {&memory_, 1}, 0, SelfIdentity(), MakeWaitOptions(config_, 1, 1)));
  TellOfJob(TargetOf(config_), *memory_.state);
  const Status status = Train(*store, checkpoints, progress, report);
  report->TakeStatus(ReadJobStatus(memory_));
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
  checkpoints.Begin({memory_}, WorkerNames{});
  log.SessionComplete();
  const int cores = static_cast<int>(UsableCpus().size());
  PASSEL_ASSIGN_OR_RETURN(
      Trainer trainer,
      Trainer::Create(config_, data_.data(), MakeWaitOptions(config_, 1, cores).spin, 0, log));
  trainer.WriteSummaries(config_, memory_, false, config_.checkpoints.folder);
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
    progress.Update(ReadJobStatus(memory_));
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
