#include "job/checkpoint_saver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/wait_check.h"
#include "cluster/patience.h"
#include "job/checkpoint_beginning.h"
#include "job/first_values.h"
#include "train/checkpoint_set.h"
#include "train/worker_loop.h"

namespace passel::job {
namespace {

// How often it looks whether enough steps were made.
constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::milliseconds kIdle{200};
// After a save that failed, doubled with each.
constexpr std::chrono::seconds kPauseAfterError{2}, kMostPauseAfterError{300};
// Of one save; slow disks take minutes.
constexpr std::chrono::hours kSaveLimit{1};
// Beyond the deadline of a last save, until it is left behind.
constexpr std::chrono::nanoseconds kSlack = std::chrono::seconds(1);
// The thread that saves asks for each block; this is for one that hangs.
constexpr std::chrono::milliseconds kAlive{250};
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

}  // namespace

CheckpointSaver::CheckpointSaver(const JobConfig& config, const JobSettings& settings,
                                 const StorePlan& plan, const std::string& data)
    : config_(config), settings_(settings), plan_(plan), data_(data) {}

CheckpointSaver::~CheckpointSaver() {
  PASSEL_CHECK(!hangs_, "its thread needs it");
  quit_.store(true, std::memory_order_relaxed);
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

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
  resumed_ = fmt::format("goes on from {}, global step {}{}{}", resume_from_, from.global_step(),
                         changed.empty() ? "" : "; unlike then: ", changed);
  resumed_step_ = from.global_step();
  away_ = WorkersAway(from.saved());
  if (const std::string why = WhyFinished(config_, plan_, from.saved()); !why.empty()) {
    finished_ = fmt::format(
        "{} is of a job that is finished: {}; raise that to go on, or name another "
        "--checkpoint_dir to begin anew",
        resume_from_, why);
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
  if (!finished_.empty()) LogWarning("{}", finished_);
}

void CheckpointSaver::Begin(std::vector<ShardMemory> shards, const WorkerNames& names) {
  if (!folder_ || thread_.joinable()) return;
  shards_ = std::move(shards);
  names_ = names;
  // Who saved before may have died long after its last save, and so may this one.
  at_once_ = Step() != saved_step_;
  GoOn();
}

void CheckpointSaver::GoOn() {
  saved_ns_ = MonotonicNs();
  tried_step_ = saved_step_.value_or(0);
  Start([this] { Run(); });
}

std::int64_t CheckpointSaver::Step() const {
  return shards_[0].state->global_step.load(std::memory_order_acquire);
}

bool CheckpointSaver::Due() const {
  const CheckpointConfig& c = config_.checkpoints;
  const std::int64_t step = Step();
  if (step == saved_step_) return false;
  if (c.steps > 0 && step >= tried_step_ + c.steps) return true;
  return c.interval.count() > 0 && MonotonicNs() - saved_ns_ >= c.interval.count();
}

void CheckpointSaver::Run() {
  std::chrono::nanoseconds pause = kPauseAfterError;
  std::int64_t not_before_ns = 0;
  while (!quit_.load(std::memory_order_relaxed)) {
    if ((at_once_ || Due()) && MonotonicNs() >= not_before_ns) {
      at_once_ = false;
      // What is made while it is saved belongs to the next.
      const std::int64_t begin_ns = MonotonicNs(), begin_step = Step();
      const Status saved = Save(std::nullopt, Deadline::After(kSaveLimit));
      if (quit_.load(std::memory_order_relaxed)) return;  // End() may not have waited for it
      saved_ns_ = begin_ns;
      tried_step_ = begin_step;
      // When a job ends the last save says what is wrong, if it still is.
      const bool ending = shards_[0].state->stop.load(std::memory_order_relaxed) != 0;
      if (!saved.ok() && saved.code() != Code::kCancelled && !ending) {
        ++facts_.failed;
        LogWarning(
            "no checkpoint was saved to {}: {}; {}, and another is tried when "
            "it is due, {} s from now at the earliest",
            config_.checkpoints.folder, saved.message(),
            others_ != nullptr && IsMissing(saved.code()) && saved.message().starts_with("ps/")
                ? "whoever needs that ps waits for it, for --ps_wait at most"
                : "training goes on",
            std::chrono::duration_cast<std::chrono::seconds>(pause).count());
        not_before_ns = MonotonicNs() + pause.count();
        pause = std::min<std::chrono::nanoseconds>(2 * pause, kMostPauseAfterError);
      } else {
        pause = kPauseAfterError;
      }
    }
    best_->Look(shards_[0], *folder_);
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, config_.checkpoints.steps > 0 ? kLook : kIdle,
                   [this] { return quit_.load(std::memory_order_relaxed); });
  }
}

void CheckpointSaver::Start(std::function<void()> work) {
  busy_ = true;
  thread_ = std::thread([this, work = std::move(work)] {
    nvtx::NameThread("checkpoints");
    work();
    const std::lock_guard lock(mutex_);
    busy_ = false;
    wake_.notify_all();
  });
}

void CheckpointSaver::CallAlive() {
  const std::lock_guard lock(alive_mutex_);
  if (alive_) alive_();
}

void CheckpointSaver::SetAlive(std::function<void()> alive) {
  const std::lock_guard lock(alive_mutex_);
  alive_ = std::move(alive);
}

bool CheckpointSaver::AwaitThread(Deadline deadline) {
  std::optional<Deadline> late;  // after GiveUp()
  std::unique_lock lock(mutex_);
  while (busy_ && !deadline.Expired() && !(late && late->Expired())) {
    wake_.wait_for(lock, std::min<std::chrono::nanoseconds>(deadline.Remaining(), kAlive),
                   [this] { return !busy_; });
    if (!busy_) break;
    if (!late && given_up_.load(std::memory_order_relaxed)) late = Deadline::After(kSlack);
    lock.unlock();
    CallAlive();
    const bool over = WaitIsOver();
    lock.lock();
    if (!late && over) {
      late = Deadline::After(kSlack);
      quit_.store(true, std::memory_order_relaxed);
    }
  }
  hangs_ = busy_;
  lock.unlock();
  if (!hangs_ && thread_.joinable()) thread_.join();
  return !hangs_;
}

void CheckpointSaver::Quit() {
  {
    const std::lock_guard lock(mutex_);
    quit_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_all();
}

void CheckpointSaver::GiveUp() {
  given_up_.store(true, std::memory_order_relaxed);
  quit_.store(true, std::memory_order_relaxed);
}

Status CheckpointSaver::End(AtEnd at_end, Deadline deadline, const std::function<void()>& alive) {
  if (!thread_.joinable()) return {};
  SetAlive(alive);
  Status ended = EndThread(at_end, deadline);
  SetAlive({});  // a thread that hangs must not call it later
  return ended;
}

Status CheckpointSaver::EndThread(std::optional<AtEnd> at_end, Deadline deadline) {
  // The thread looks at the time itself, but for what waits in the kernel.
  const Deadline patience = Deadline::At(deadline.at_ns() + kSlack.count());
  const Status hangs =
      DeadlineExceeded(fmt::format("{} was not saved to {}: the disk has not answered in time, and "
                                   "is left to itself",
                                   asked_for_, config_.checkpoints.folder));
  Quit();
  if (!AwaitThread(patience)) return hangs;
  if (!given_up_.load(std::memory_order_relaxed)) quit_.store(false, std::memory_order_relaxed);
  if (Step() == saved_step_) return {};
  const auto save = [this, at_end, deadline] { last_ = SaveLast(at_end, deadline); };
  try {
    Start(save);
  } catch (const std::system_error&) {
    busy_ = false;
    save();  // no thread is left for it
  }
  if (thread_.joinable() && !AwaitThread(patience)) return hangs;
  return last_;
}

Status CheckpointSaver::SaveOnce(std::vector<ShardMemory> shards, const WorkerNames& names,
                                 std::optional<AtEnd> at_end, Deadline deadline,
                                 const std::function<void()>& alive) {
  if (!folder_) return {};
  if (!thread_.joinable()) {
    shards_ = std::move(shards);
    names_ = names;
  }
  SetAlive(alive);
  Status ended = EndThread(at_end, deadline);
  SetAlive({});
  return ended;
}

Status CheckpointSaver::SaveNow(std::optional<AtEnd> at_end, Deadline deadline,
                                const std::function<void()>& alive) {
  if (!thread_.joinable()) return {};
  asked_for_ = "the checkpoint that was asked for";
  SetAlive(alive);
  Status ended = EndThread(at_end, deadline);
  SetAlive({});
  asked_for_ = "the last checkpoint";
  if (hangs_) return ended;
  just_saved_ = saved_step_;
  if (!given_up_.load(std::memory_order_relaxed)) quit_.store(false, std::memory_order_relaxed);
  GoOn();
  return ended;
}

bool CheckpointSaver::Leave(Deadline deadline) {
  GiveUp();
  wake_.notify_all();
  return AwaitThread(deadline);
}

Status CheckpointSaver::SaveLast(std::optional<AtEnd> at_end, Deadline deadline) {
  const auto before = saved_step_;
  const Status saved = Step() == saved_step_ ? Status() : Save(at_end, deadline);
  if (saved_step_ != before) last_step_ = saved_step_;
  best_->Look(shards_[0], *folder_);
  if (saved.ok()) return {};
  ++facts_.failed;
  return saved.WithContext(fmt::format("{} was not saved to {}, where the newest is {}", asked_for_,
                                       config_.checkpoints.folder,
                                       saved_step_ ? CheckpointName(*saved_step_) : "none"));
}

CheckpointFacts CheckpointSaver::Facts() const {
  CheckpointFacts facts = facts_;
  facts.resumed_from = resume_from_;
  facts.was_finished = !finished_.empty();
  if (!folder_ || hangs_) return facts;  // a thread that hangs has the folder
  facts.folder = folder_->path();
  if (!folder_->index().kept.empty()) facts.newest = folder_->index().kept.back().name;
  if (const auto best = BestCheckpoint(facts.folder); best.ok()) facts.best = *best;
  return facts;
}

Status CheckpointSaver::Save(std::optional<AtEnd> at_end, Deadline deadline) {
  PASSEL_RETURN_IF_ERROR(folder_->CheckOwner());
  const SavedJob job{config_, settings_,   plan_, data_,        shards_,
                     names_,  begun_with_, away_, others_.get()};
  const SaveLimits limits{quit_, deadline, [this] { CallAlive(); }};
  try {
    PASSEL_ASSIGN_OR_RETURN(const SaveOutcome outcome,
                            SaveCheckpoint(job, saved_step_, at_end, limits, *folder_));
    saved_step_ = outcome.newest;
    facts_.held_seconds += ToSeconds(outcome.meeting.held);
    if (!outcome.written) return {};
    ++facts_.saved;
    facts_.bytes += outcome.bytes;
    facts_.copying_seconds += ToSeconds(outcome.copying);
    facts_.writing_seconds += ToSeconds(outcome.writing);
  } catch (const std::bad_alloc&) {
    return ErrnoStatus(ENOMEM, "there is no memory for it");
  }
  return {};
}

}  // namespace passel::job
