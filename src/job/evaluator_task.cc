#include "job/evaluator_task.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/denormals.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/output.h"
#include "cluster/patience.h"
#include "compute/cpu_backend.h"
#include "job/evaluation_data.h"
#include "job/exit_code.h"
#include "job/job_observer.h"
#include "job/remote_observer.h"
#include "job/shared_data.h"
#include "train/model_plan.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

constexpr std::chrono::milliseconds kFollowEvery{20};

// A worker in a long step is waited for so long.
constexpr std::chrono::seconds kMeetLimit{30};

class EvaluatorTask {
 public:
  EvaluatorTask(const Task& task, JobConfig& config) : task_(task), config_(config) {}

  // True: the job was stopped before its last step.
  Result<bool> Run() {
    if (task_.several_hosts && !task_.flags.supervised) PASSEL_RETURN_IF_ERROR(AttachElsewhere());
    if (!job_) PASSEL_RETURN_IF_ERROR(AttachHere());
    PASSEL_RETURN_IF_ERROR(LoadData());
    PASSEL_ASSIGN_OR_RETURN(const ModelLayout layout,
                            ModelLayout::Make(config_.model, job_->plan().variables));
    layout_.emplace(layout);
    CpuBackendOptions compute;
    compute.threads = config_.threads_per_worker;
    PASSEL_ASSIGN_OR_RETURN(backend_, CreateCpuBackend(compute));
    PASSEL_ASSIGN_OR_RETURN(model_, Model::Create(config_.model, *backend_, kEvaluationBatch));
    const FlushDenormals flush;  // as the workers do
    PASSEL_RETURN_IF_ERROR(Follow());
    return job_->Stopped();
  }

 private:
  Status AttachElsewhere() {
    RemoteJobOptions options;
    options.role = Role::kEvaluator;
    options.attach.start_wait = std::chrono::nanoseconds(config_.start_wait_ns);
    options.ps_wait = std::chrono::nanoseconds(config_.ps_wait_ns);
    options.attach.on_waiting = TellsOfWaiting(config_);
    PASSEL_ASSIGN_OR_RETURN(job_, RemoteObserver::AttachIfElsewhere(task_, options));
    if (!job_ || !config_.eval_consistent) return {};
    return InvalidArgument(
        "--eval_consistent is for an evaluator of the host of ps/0: start it there, or omit it");
  }

  Status AttachHere() {
    ObserverOptions options;
    options.me = {task_.job_id, Role::kEvaluator, task_.id.index, task_.spec.Hash()};
    options.num_shards = task_.spec.num_tasks("ps");
    options.chief_name = task_.Names().chief_name;
    options.start_wait = std::chrono::nanoseconds(config_.start_wait_ns);
    options.on_waiting = TellsOfWaiting(config_);
    PASSEL_ASSIGN_OR_RETURN(job_, JobObserver::Attach(options, task_.token));
    return {};
  }

  Status LoadData() {
    if (task_.flags.data_fd >= 0) {
      PASSEL_ASSIGN_OR_RETURN(SharedData data,
                              SharedData::Map(FileDescriptor(::dup(task_.flags.data_fd))));
      data_.emplace(std::move(data));
    } else {
      NamedData named;
      named.source = task_.job.source;
      if (task_.job.csv_train_limit != 0) named.csv_train_limit = task_.job.csv_train_limit;
      if (task_.job.csv_test_limit != 0) named.csv_test_limit = task_.job.csv_test_limit;
      PASSEL_ASSIGN_OR_RETURN(
          const ChosenData chosen,
          ChooseEvaluationData(named, TrainedOn::OfJob(task_.job_id, job_->DataJson())));
      data_key_ = chosen.key;
      std::optional<FileDescriptor> fd = job_->GetData(chosen.key);
      PASSEL_ASSIGN_OR_RETURN(SharedData data, fd ? SharedData::Map(std::move(*fd))
                                                  : SharedData::Load(chosen.dir, chosen.options));
      data_.emplace(std::move(data));
    }
    PASSEL_RETURN_IF_ERROR(FitToData(data_->data(), task_.NumTrainers(), &config_));
    ChooseValidation();
    if (data_->data().test().size() > 0) return {};
    return InvalidArgument(
        "an evaluator needs test images, and this data set has none: use another --data_dir");
  }

  // What the job has held back, if it is this data that it trains on.
  void ChooseValidation() {
    const TrainedOn trained = TrainedOn::OfJob(task_.job_id, job_->DataJson());
    if (trained.told.empty() || trained.told[0].split.validation_size == 0) return;
    if (task_.flags.data_fd < 0 && trained.told[0].key != data_key_) return;
    Result<ImageSet> images = ChooseEvaluationSet("validation", data_->data(), trained.told[0].fake,
                                                  std::nullopt, trained);
    if (images.ok()) {
      validation_ = *images;
    } else {
      LogWarning("no validation images are looked at: {}", images.status().message());
    }
  }

  // Until the job has ended.
  Status Follow() {
    std::int64_t evaluated_step = -1;
    std::int64_t next_ns = MonotonicNs();
    for (;;) {
      PASSEL_RETURN_IF_ERROR(job_->Look());
      if (job_->Ended()) {
        // The last values of a supervised job are the supervisor's to evaluate.
        if (task_.flags.supervised) return {};
        return Evaluate("final evaluation", &evaluated_step);
      }
      if (!task_.flags.supervised && job_->MissingFor().count() > config_.ps_wait_ns) {
        return Unavailable(fmt::format(
            "a ps has been gone for {:.1f} s and none came back, so the job cannot be followed: "
            "start it and this evaluator again, or raise --ps_wait",
            1e-9 * static_cast<double>(job_->MissingFor().count())));
      }
      const std::int64_t step = job_->global_step();
      const bool enough_steps = config_.eval_steps > 0 && evaluated_step >= 0 &&
                                step >= evaluated_step + config_.eval_steps;
      if (enough_steps || (MonotonicNs() >= next_ns && step != evaluated_step)) {
        next_ns = MonotonicNs() + config_.eval_interval_ns;
        const Status done = Evaluate("evaluation", &evaluated_step);
        // A ps that is gone is waited for.
        if (!done.ok() && !IsMissing(done.code())) return done;
      } else {
        std::this_thread::sleep_for(kFollowEvery);
      }
    }
  }

  Result<WatchedJob::Copied> Copy() {
    // When all have ended nobody changes them.
    if (!config_.eval_consistent || job_->Ended()) return job_->CopyValues();
    MeetingCost cost;
    const Result<WatchedJob::Copied> copied =
        job_->CopyValuesAtOneStep(Deadline::After(kMeetLimit), &cost);
    if (!copied.ok()) {
      // The job has ended meanwhile?
      (void)job_->Look();
      if (job_->Ended()) return job_->CopyValues();
      LogWarning("this evaluation is of values that may be of several steps: {}",
                 copied.status().message());
      return job_->CopyValues();
    }
    LogInfo("the workers waited {:.1f} ms at most for the values of global step {}",
            1e-6 * static_cast<double>((cost.gathering + cost.held).count()), copied->last_step);
    return *copied;
  }

  Status Evaluate(const char* what, std::int64_t* evaluated_step) {
    const std::int64_t step = job_->global_step();
    nvtx::Range pull_range(nvtx::Event::kPull, step);
    PASSEL_ASSIGN_OR_RETURN(const WatchedJob::Copied copied, Copy());
    layout_->Bind(job_->values(), &parts_);
    pull_range.Close();
    nvtx::Range evaluate_range(nvtx::Event::kEvaluate, copied.last_step);
    PASSEL_ASSIGN_OR_RETURN(const TestResult test, EvaluateTest(*model_, data_->data(), parts_));
    std::string validation;
    if (validation_) {
      PASSEL_ASSIGN_OR_RETURN(const TestResult held_back,
                              EvaluateImages(*model_, *validation_, parts_));
      if (std::isfinite(held_back.loss)) job_->TellScore(held_back.accuracy, copied.last_step);
      validation = fmt::format(", validation accuracy {:.4f}", held_back.accuracy);
    }
    evaluate_range.Close();
    // When the next is due does not depend on how old a shadow is.
    *evaluated_step = copied.shadow_age_ns ? step : copied.last_step;
    const std::string shadow =
        copied.shadow_age_ns ? fmt::format(" (a shadow of the values on the GPU, {:.1f} s old)",
                                           1e-9 * static_cast<double>(*copied.shadow_age_ns))
                             : "";
    Write(Stream::kOut,
          fmt::format("{} at global step {}{}: test accuracy {:.4f}, test loss {:.4f}{}\n", what,
                      copied.last_step, shadow, test.accuracy, test.loss, validation));
    return {};
  }

  const Task& task_;
  JobConfig& config_;
  std::unique_ptr<WatchedJob> job_;
  std::string data_key_;  // of what it has found itself
  std::optional<SharedData> data_;
  std::optional<ImageSet> validation_;  // nothing: the job holds none back
  std::optional<ModelLayout> layout_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::vector<std::vector<RowPart>> parts_;
};

}  // namespace

int RunEvaluatorTask(Task& task, JobConfig& config) {
  // Signals end it at once: it has nothing to finish.
  const Result<bool> stopped = EvaluatorTask(task, config).Run();
  if (!stopped.ok()) return FailTask(stopped.status(), task.flags.error_fd);
  return *stopped ? kExitInterrupted : kExitDone;
}

}  // namespace passel::job
