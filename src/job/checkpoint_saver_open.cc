// How a CheckpointSaver begins: it owns the folder, and finds what the job goes on from.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/counted.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/patience.h"
#include "compute/matrix_kernels.h"
#include "job/checkpoint_beginning.h"
#include "job/checkpoint_saver.h"
#include "job/first_values.h"
#include "job/saved_values.h"
#include "train/checkpoint_set.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

// Of a folder's owner that is another life of the job.
constexpr std::chrono::seconds kFormerLifeLimit{10};

Result<CheckpointFolder> OwnFolder(const JobConfig& config) {
  const CheckpointConfig& c = config.checkpoints;
  const auto limit = std::min<std::chrono::nanoseconds>(
      kFormerLifeLimit, std::chrono::nanoseconds(config.start_wait_ns));
  Patience patience(Deadline::After(limit));
  for (bool told = false;; told = true) {
    Result<CheckpointFolder> folder =
        CheckpointFolder::Own(c.folder, c.keep, WallSeconds(), FileOps::Real(), c.job);
    if (folder.status().code() != Code::kUnavailable) return folder;
    const std::string& why = folder.status().message();
    if (!told && limit.count() > 0) LogInfo("{}: waiting for its end", why);
    if (patience.Again(std::chrono::milliseconds(50))) continue;
    return DeadlineExceeded(
        fmt::format("{}, which has not ended within {:g} s: end it, then start this again, "
                    "or name another folder",
                    why, ToSeconds(limit)));
  }
}

// That a job of this plan has when it begins at that step.
ModeSetting ModeAt(const StorePlan& plan, std::int64_t step) {
  ModeSetting mode = plan.mode;
  for (const ScheduledMode& later : plan.schedule) {
    if (later.step <= step) mode = later.setting;
  }
  return mode;
}

// Why nothing is left to train after `saved`; "" if something is.
std::string WhyFinished(const JobConfig& config, const StorePlan& plan, const JobProgress& saved) {
  WorkerOptions options = config.worker;
  if (options.train_steps != kNoStepLimit && saved.global_step >= options.train_steps) {
    return fmt::format("its global step {} is not below --train_steps {}", saved.global_step,
                       options.train_steps);
  }
  options.num_workers = plan.num_workers;
  const int first = plan.num_workers - plan.spare_workers;  // those it would begin with
  if (saved.workers.size() < static_cast<std::size_t>(first)) return {};
  for (int k = 0; k < first; ++k) {
    const std::int64_t limit = LocalStepLimit(options, config.examples, k);
    const std::uint64_t made = saved.workers[static_cast<std::size_t>(k)].local_steps;
    if (limit == kNoStepLimit || made < static_cast<std::uint64_t>(limit)) return {};
  }
  return fmt::format("each worker has made the steps of {}",
                     options.epochs == kNoStepLimit
                         ? fmt::format("--local_steps {}", options.local_steps)
                         : fmt::format("--epochs {}", options.epochs));
}

// Workers have counted their steps, and --epochs is as many as it takes now. `changed`: since then.
Status CheckEpochs(const WorkerOptions& options, const std::string& from,
                   const std::string& changed, bool other_workers) {
  if (options.epochs == kNoStepLimit) return {};
  bool others = options.shard_data && other_workers;
  for (const char* of_epochs : {"--batch_size ", "--shard_data ", "the data of "}) {
    others |= changed.find(of_epochs) != std::string::npos;
  }
  if (!others) return {};
  return InvalidArgument(fmt::format(
      "--epochs {} cannot go on from {}, whose epochs had another number of steps: unlike then: "
      "{}; give what was given then, or say by --train_steps how far to train",
      options.epochs, from, changed));
}

}  // namespace

Result<std::unique_ptr<CheckpointSaver>> CheckpointSaver::Open(const JobConfig& config,
                                                               const JobSettings& settings,
                                                               const StorePlan& plan,
                                                               const std::string& data,
                                                               bool begun) {
  std::unique_ptr<CheckpointSaver> saver(new CheckpointSaver(config, settings, plan, data));
  const CheckpointConfig& checkpoints = config.checkpoints;
  if (!checkpoints.folder.empty()) {
    PASSEL_ASSIGN_OR_RETURN(CheckpointFolder folder, OwnFolder(config));
    saver->folder_.emplace(std::move(folder));
    if (begun) {
      saver->GoOnSaving();
    } else {
      PASSEL_RETURN_IF_ERROR(CheckFreeSpace(checkpoints.folder, CheckpointBytes(plan)));
    }
  }
  if (!begun) PASSEL_RETURN_IF_ERROR(saver->ChooseFirst());
  if (saver->folder_) {  // whose best may have been found broken
    PASSEL_ASSIGN_OR_RETURN(saver->best_, BestCheckpointMarker::Create(*saver->folder_));
  }
  return saver;
}

void CheckpointSaver::GoOnSaving() {
  if (folder_->index().kept.empty()) {
    if (!config_.checkpoints.ResumesFromPath()) return;
    // Killed before its first save, it began with that.
    const Result<CheckpointSet> from = OpenCheckpointAt(config_.checkpoints.resume);
    if (from.ok()) begun_with_ = from->parts()[0].Word(kSaveKey);
    return;
  }
  const std::string newest = folder_->index().kept.back().name;
  saved_step_ = StepOfCheckpoint(newest);
  begun_with_ = BegunWith(*folder_, newest);
  // Reading all of a large set takes long: only if it has such workers.
  if (WorkersIn(*folder_, newest) <= plan_.num_workers) return;
  const Result<CheckpointSet> set = OpenCheckpointAt(folder_->PathOf(newest));
  if (set.ok()) away_ = WorkersAway(set->saved());
}

std::vector<JobProgress::Worker> CheckpointSaver::WorkersAway(const JobProgress& saved) const {
  const auto places = static_cast<std::size_t>(plan_.num_workers);
  if (saved.workers.size() <= places) return {};
  return {saved.workers.begin() + plan_.num_workers, saved.workers.end()};
}

Status CheckpointSaver::ChooseFirst() {
  PASSEL_ASSIGN_OR_RETURN(const Beginning beginning,
                          ChooseBeginning(config_.checkpoints, folder_ ? &*folder_ : nullptr));
  begun_with_ = beginning.begun_with;
  resume_from_ = beginning.path;
  if (!beginning.from) return {};
  const CheckpointSet& from = *beginning.from;
  PASSEL_RETURN_IF_ERROR(CheckCanGoOn(from, plan_, config_.model.kind == ModelKind::kOwn));
  std::string changed = ChangedMathematics(settings_, from.words().settings);
  if (const std::string data = ChangedData(data_, from.words().data); !data.empty()) {
    changed += (changed.empty() ? "" : ", ") + data;
  }
  const int workers = plan_.num_workers - plan_.spare_workers;
  if (from.words().workers != workers) {
    changed +=
        fmt::format("{}{} (was {})", changed.empty() ? "" : ", ",
                    Counted(static_cast<std::uint64_t>(workers), "worker"), from.words().workers);
  }
  if (const std::string mode = ModeAt(plan_, from.global_step()).ToString();
      mode != from.words().mode && changed.find("--mode") == std::string::npos) {
    // That of passel ctl set-mode, too, is the mode that it was saved in.
    changed +=
        fmt::format("{}mode {} (was {})", changed.empty() ? "" : ", ", mode, from.words().mode);
  }
  PASSEL_RETURN_IF_ERROR(CheckEpochs(config_.worker, resume_from_, changed,
                                     /*other_workers=*/from.words().workers != workers));
  resumed_ = fmt::format("goes on from {}, global step {}{}{}", resume_from_, from.global_step(),
                         changed.empty() ? "" : "; unlike then: ", changed);
  resumed_step_ = from.global_step();
  // Of older checkpoints, programs of their own and GPUs nothing is known.
  const std::string then = from.parts()[0].Word(kKernelsKey);
  const std::string now = MatrixKernels(config_.threads_per_worker);
  if (config_.mode.traits().rounds && !then.empty() && then != now) {
    other_kernels_ = fmt::format(
        "{} was made with the matrix kernels {}, and here they are {}: what this job computes is "
        "right, but not bit for bit what one uninterrupted run would give",
        resume_from_, Quoted(then), Quoted(now));
  }
  away_ = WorkersAway(from.saved());
  if (const std::string why = WhyFinished(config_, plan_, from.saved()); !why.empty()) {
    finished_ =
        fmt::format("{} is of a job that is finished: {}; raise that to go on, or {} to begin anew",
                    resume_from_, why,
                    beginning.in_folder ? "name another --checkpoint_dir" : "leave --resume out");
  }
  if (!beginning.in_folder) return {};
  saved_step_ = from.global_step();
  if (folder_->index().Find(CheckpointName(*saved_step_)) != nullptr) return {};
  return folder_->Commit(*saved_step_, static_cast<int>(from.parts().size()), WallSeconds());
}

void CheckpointSaver::TellOfBeginning() const {
  if (!resumed_.empty()) {
    LogInfo("this job {}{}", resumed_,
            folder_ ? "" : "; it saves no checkpoints: that takes --checkpoint_dir");
  }
  if (const std::string& init = config_.checkpoints.init; !init.empty() && !resumed_.empty()) {
    LogInfo("--init {} is not used: this job goes on from a checkpoint", init);
  }
  if (!finished_.empty()) {
    LogWarning("{}", finished_);
  } else if (!other_kernels_.empty()) {
    LogWarning("{}", other_kernels_);
  }
}

}  // namespace passel::job
