#include "job/train_job.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/counted.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/namespaces.h"
#include "compute/cpu_backend.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "job/blas_variables.h"
#include "job/checkpoint_saver.h"
#include "job/checkpoint_settings.h"
#include "job/conclusion.h"
#include "job/data_settings.h"
#include "job/exit_code.h"
#include "job/memory_need.h"
#include "job/progress.h"
#include "job/shared_data.h"
#include "job/signals.h"
#include "job/single_process.h"
#include "job/supervisor.h"
#include "train/checkpoint_watch.h"

namespace passel::job {
namespace {

constexpr std::int64_t kLookAtSignalsNs = 20'000'000;
// Of a disk, to mark the best checkpoint.
constexpr std::chrono::seconds kMarkLimit{10};

class TrainJob {
 public:
  TrainJob(const TrainSettings& settings, const JobConfig& config, const LaunchSetup& setup)
      : settings_(settings), config_(config), setup_(setup) {}

  Result<JobReport> Run(std::int64_t program_start_ns) {
    report_.program_start_ns = program_start_ns;
    PASSEL_RETURN_IF_ERROR(LoadData());
    PASSEL_RETURN_IF_ERROR(MakePlans());
    PASSEL_RETURN_IF_ERROR(CheckMachine());
    config_.checkpoints.job = JobWord();
    PASSEL_ASSIGN_OR_RETURN(checkpoints_,
                            CheckpointSaver::Open(config_, settings_.job, plan_, about_data_));
    checkpoints_->TellOfBeginning();
    PASSEL_ASSIGN_OR_RETURN(SignalEvents signals, SignalEvents::Create());
    BeginReport();
    Progress progress(config_.worker.train_steps, local_steps_,
                      config_.log_style != LogStyle::kNone);
    PASSEL_RETURN_IF_ERROR(settings_.ps == 0 ? TrainHere(signals, progress)
                                             : TrainInTasks(signals, progress));
    EndCheckpoints(signals);
    EndJob(signals, progress);
    return std::move(report_);
  }
  /// CheckpointSaver::hangs(): this job must not be destroyed.
  bool SaveHangs() const { return checkpoints_ && checkpoints_->hangs(); }

 private:
  Status LoadData() {
    const JobSettings& job = settings_.job;
    PASSEL_ASSIGN_OR_RETURN(const DataOptions options, JobDataOptions(job));
    PASSEL_ASSIGN_OR_RETURN(const DataLocation location, Locate(job.source));
    if (location.origin == DataOrigin::kGenerated) {
      LogWarning("{}", location.why);
    } else {
      LogInfo("{}", location.why);
    }
    report_.data = location.dir;
    PASSEL_ASSIGN_OR_RETURN(std::string key, DataKey(location.dir, options));
    PASSEL_ASSIGN_OR_RETURN(SharedData data, SharedData::Load(location.dir, options));
    data_.emplace(std::move(data));
    const ChosenData chosen{location.dir, options, std::move(key)};
    about_data_ = ToJson(DescribeData(chosen, data_->data(), config_));
    return {};
  }

  // What follows from the data: the model, the arenas and whether they fit, how many steps it is.
  Status MakePlans() {
    PASSEL_RETURN_IF_ERROR(FitToData(data_->data(), settings_.MaxWorkers(), &config_));
    PASSEL_ASSIGN_OR_RETURN(plan_, MakePlan(config_, std::max(1, settings_.ps), settings_.workers,
                                            settings_.MaxWorkers()));
    PASSEL_RETURN_IF_ERROR(
        CheckMemory(plan_, config_, {settings_.ps, settings_.MaxWorkers(), settings_.evaluator}));
    PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout,
                            ModelLayout::Make(config_.model, plan_.variables));
    layout_.emplace(layout);
    PASSEL_ASSIGN_OR_RETURN(const DataSplit split, SplitData(config_, data_->data()));
    local_steps_ = TotalLocalSteps(config_, split, settings_.workers);
    return {};
  }

  // Started again without a name, it is the same job if its settings are the same.
  std::string JobWord() const {
    if (!settings_.job_id.empty()) return settings_.job_id;
    Fnv1a hash;
    hash.AddText(SettingsToKeep(settings_.job).Write());
    return fmt::format("train {:016x}", hash.value());
  }

  Status CheckMachine() const {
    if (settings_.ps > 0) PASSEL_RETURN_IF_ERROR(CheckClocksOfChildren());
    WarnOfBlasCore();
    // The last evaluation is ours: what it lacks is said before hours of training.
    return CreateCpuBackend().status();
  }

  void BeginReport() {
    report_.run = DescribeRun(settings_);
    report_.job_id =
        settings_.job_id.empty() ? fmt::format("job-{}", ::getpid()) : settings_.job_id;
    report_.mode = config_.mode.traits().name;
    report_.push_every = config_.worker.push_every;
    report_.model = settings_.job.model;
    report_.optimizer = OptimizerName(config_.optimizer.kind);
    if (!checkpoints_->resumed().empty()) {
      report_.notes.push_back("this job " + checkpoints_->resumed());
      if (!checkpoints_->finished().empty()) report_.notes.push_back(checkpoints_->finished());
      report_.resumed_step = checkpoints_->resumed_step();
    }
    report_.ps = settings_.ps;
  }

  Status TrainHere(SignalEvents& signals, Progress& progress) {
    alone_ =
        std::make_unique<SingleProcessJob>(config_, plan_, *layout_, *data_, about_data_, signals);
    const Status status = alone_->Run(*checkpoints_, progress, &report_);
    progress.Finish();
    if (report_.exit_code == kExitRestartMe) end_by_ = AfterGrace();
    if (status.ok()) layout_->Bind(alone_->values(), &values_);
    return status;
  }

  Deadline AfterGrace() const {
    return Deadline::After(
        std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * settings_.grace)));
  }

  Status TrainInTasks(SignalEvents& signals, Progress& progress) {
    supervisor_ =
        std::make_unique<Supervisor>(TasksToStart(), settings_.job, config_, &*data_, signals);
    const int most = settings_.MaxWorkers();
    LogInfo("job {}: {} ps, {}{}, mode {}, {} parameters", report_.job_id, settings_.ps,
            Counted(static_cast<std::uint64_t>(settings_.workers), "worker"),
            most > settings_.workers ? fmt::format(" (up to {})", most) : "", report_.mode,
            plan_.variables.TotalElements());
    PASSEL_RETURN_IF_ERROR(supervisor_->Start());
    const JobOutcome outcome = supervisor_->Run(progress);
    progress.Finish();
    report_.exit_code = outcome.exit_code;
    report_.interrupted = outcome.interrupted;
    report_.pinned = outcome.pinned;
    report_.lives = outcome.lives;
    report_.worker_exits = outcome.worker_exits;
    report_.notes.insert(report_.notes.end(), outcome.notes.begin(), outcome.notes.end());
    end_by_ = outcome.end_by;
    TakeArenas();
    return {};
  }

  SupervisorOptions TasksToStart() const {
    SupervisorOptions options;
    options.job_id = report_.job_id;
    options.ps = settings_.ps;
    options.workers = settings_.workers;
    options.max_workers = settings_.MaxWorkers();
    options.plan = setup_.plan;
    options.gpu_or_cpu = setup_.may_fall_back;
    options.max_restarts = settings_.max_restarts;
    options.restart_window = settings_.restart_window;
    options.program_start_ns = report_.program_start_ns;
    options.grace = settings_.grace;
    options.evaluator = settings_.evaluator;
    options.data = about_data_;
    options.devices = settings_.devices;
    // Worker i computes on the one at place i modulo their number.
    if (setup_.num_gpus > 0) options.devices.num_gpus = setup_.num_gpus;
    options.resume_from = checkpoints_->resume_from();
    options.on_values = [this](const std::vector<ShardMemory>& shards) {
      checkpoints_->Begin(shards, WorkerNames{});
    };
    return options;
  }

  // What is in the arenas when all tasks have ended; nothing if the job never got so far.
  void TakeArenas() {
    const std::vector<const shm::Arena*> arenas = supervisor_->arenas();
    if (arenas.empty()) return;
    report_.TakeStatus(ReadJobStatus(arenas[0]->memory()));
    if (!report_.status.initialized) return;
    std::vector<const float*> values;
    for (const shm::Arena* arena : arenas) values.push_back(arena->memory().values);
    layout_->Bind(values, &values_);
    if (config_.on_device) NoteShadow(arenas[0]->memory(), &report_);
  }

  // All tasks have ended: the values are what they stay. A signal gives the save --grace from then
  // on; the second one of the job ends it at once.
  void EndCheckpoints(SignalEvents& signals) {
    bool asked = report_.interrupted;
    std::int64_t next_look_ns = 0;
    const auto look = [&] {
      const std::int64_t now = MonotonicNs();
      if (now < next_look_ns) return;
      next_look_ns = now + kLookAtSignalsNs;
      if (signals.Next() != 0) {
        if (asked) checkpoints_->GiveUp();
        asked = true;
        if (!end_by_) end_by_ = AfterGrace();
      }
      if (end_by_ && end_by_->Expired()) checkpoints_->GiveUp();
    };
    const Status saved = checkpoints_->End(
        AtEnd::kNobodyTrains, end_by_.value_or(Deadline::After(std::chrono::hours(1))), look);
    report_.checkpoints = checkpoints_->Facts();
    if (const auto step = checkpoints_->last_step()) {
      TellOfCheckpoint(config_.summaries.folder,
                       InFolder(config_.checkpoints.folder, CheckpointName(*step)), *step);
    }
    if (saved.ok()) return;
    LogError("{}", saved.message());
    report_.notes.push_back(saved.message());
    if (report_.exit_code == kExitDone) report_.exit_code = kExitFailed;
  }

  // Who looks at validation images while the job trains wants its last values looked at, too.
  std::function<void(double, std::int64_t)> ScoreTaker() {
    const bool looks =
        settings_.evaluator || config_.worker.evaluation_set == EvaluationSet::kValidation;
    if (config_.checkpoints.folder.empty() || !looks) return {};
    return [this](double accuracy, std::int64_t step) {
      checkpoints_->TakeScore(accuracy, step, end_by_.value_or(Deadline::After(kMarkLimit)));
      report_.checkpoints = checkpoints_->Facts();
    };
  }

  void EndJob(SignalEvents& signals, Progress& progress) {
    // Who interrupted a job that had made all its steps meant what came after them.
    const bool all_steps = report_.status.global_step >= config_.worker.train_steps ||
                           report_.status.local_steps >= static_cast<std::uint64_t>(local_steps_);
    const Conclusion conclusion{config_,
                                data_->data(),
                                values_,
                                settings_.save,
                                settings_.report,
                                settings_.report_html,
                                settings_.evaluator,
                                !(report_.interrupted && all_steps),
                                ScoreTaker(),
                                end_by_};
    LearningCurve curve = progress.curve();
    curve.Add(report_.status, LastStepNs(report_.status));
    report_.curve = curve.points();
    Conclude(conclusion, signals, progress, &report_);
  }

  const TrainSettings& settings_;
  JobConfig config_;
  const LaunchSetup& setup_;
  JobReport report_;
  std::optional<SharedData> data_;
  std::string about_data_;  // ToJson(JobData)
  StorePlan plan_;
  std::optional<ModelLayout> layout_;
  std::int64_t local_steps_ = 0;    // of all workers together
  std::optional<Deadline> end_by_;  // as Conclusion::end_by
  // One of them, which holds the values.
  std::unique_ptr<SingleProcessJob> alone_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<CheckpointSaver> checkpoints_;  // before what it reads is unmapped
  std::vector<std::vector<RowPart>> values_;      // empty: the variables never had any
};

}  // namespace

Result<JobReport> RunJob(const TrainSettings& settings, const JobConfig& config,
                         const LaunchSetup& setup, std::int64_t program_start_ns) {
  auto job = std::make_unique<TrainJob>(settings, config, setup);
  Result<JobReport> report = job->Run(program_start_ns);
  if (job->SaveHangs()) (void)job.release();
  return report;
}

}  // namespace passel::job
