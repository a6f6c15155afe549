#include "job/checkpoint_saver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "base/wait_check.h"
#include "cluster/patience.h"

namespace passel::job {
namespace {

// How often it looks whether enough steps were made.
constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::milliseconds kIdle{200};
// How often whether one is wished for.
constexpr std::chrono::milliseconds kLookForWish{20};
const char kAskedFor[] = "the checkpoint that was asked for";
// Of one save; slow disks take minutes.
constexpr std::chrono::hours kSaveLimit{1};
// Beyond the deadline of a last save, until it is left behind.
constexpr std::chrono::nanoseconds kSlack = std::chrono::seconds(1);
// The thread that saves asks for each block; this is for one that hangs.
constexpr std::chrono::milliseconds kAlive{250};

}  // namespace

CheckpointSaver::CheckpointSaver(const JobConfig& config, const JobSettings& settings,
                                 const StorePlan& plan, const std::string& data)
    : config_(config),
      settings_(settings),
      plan_(plan),
      data_(data),
      schedule_(config.checkpoints.interval, config.checkpoints.steps) {}

CheckpointSaver::~CheckpointSaver() {
  PASSEL_CHECK(!hangs_, "its thread needs it");
  if (wishes_) wishes_->Forget(this);
  SayQuit();
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::Begin(std::vector<ShardMemory> shards, const WorkerNames& names) {
  if (!folder_ || thread_.joinable()) return;
  shards_ = std::move(shards);
  names_ = names;
  schedule_.Saved(MonotonicNs(), saved_step_.value_or(0));
  // Who saved before may have died long after its last save, and so may this one.
  if (Step() != saved_step_) schedule_.SetAtOnce();
  Start([this] { Run(); });
}

std::int64_t CheckpointSaver::Step() const {
  return shards_[0].state->global_step.load(std::memory_order_acquire);
}

void CheckpointSaver::Run() {
  while (!quit_.load(std::memory_order_relaxed)) {
    const std::int64_t begin_ns = MonotonicNs(), begin_step = Step();
    // First: what comes from here on interrupts.
    interrupted_.store(false, std::memory_order_seq_cst);
    if (quit_.load(std::memory_order_seq_cst)) return;
    const bool wished = wishes_ && wishes_->Pending();
    if (!wished && begin_step != saved_step_ && schedule_.Due(begin_ns, begin_step)) {
      const Status saved = Save(std::nullopt, Deadline::After(kSaveLimit), interrupted_);
      if (quit_.load(std::memory_order_relaxed)) return;  // End() may not have waited for it
      // When a job ends the last save says what is wrong, if it still is.
      const bool ending = shards_[0].state->stop.load(std::memory_order_relaxed) != 0;
      if (saved.ok() || saved.code() == Code::kCancelled || ending) {
        schedule_.Saved(begin_ns, begin_step);
      } else {
        ++facts_.failed;
        // Where all were to meet they have waited for nothing long enough.
        const bool soon = saved.code() != Code::kDeadlineExceeded && schedule_.Repeats();
        TellOfFailure(saved, soon, schedule_.Failed(begin_ns, begin_step, MonotonicNs(), soon));
      }
    }
    HeedWish();
    best_->Look(shards_[0], *folder_);
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock,
                   config_.checkpoints.steps > 0 ? kLook
                   : wishes_                     ? kLookForWish
                                                 : kIdle,
                   [this] { return quit_.load(std::memory_order_relaxed); });
  }
}

// One that is not answered because this ends is for whoever saves next.
void CheckpointSaver::HeedWish() {
  const std::optional<WishedSave> wish = wishes_ ? wishes_->Pending() : std::nullopt;
  if (!wish) return;
  const std::atomic<bool>& quit = wish->at_end ? quit_ : interrupted_;
  const Status saved = SaveAskedFor(kAskedFor, wish->at_end, wish->deadline, quit);
  if (quit_.load(std::memory_order_relaxed)) return;
  // Somebody who cannot meet has wished for one since: he first, then this one again.
  if (!wish->at_end && saved.code() == Code::kCancelled) return;
  if (!saved.ok()) ++facts_.failed;
  ScheduleAfter(saved);
  if (!saved.ok()) {
    wishes_->Answer(wish->number, saved);
  } else if (saved_step_) {
    wishes_->Answer(wish->number, *saved_step_);
  } else {
    wishes_->Answer(wish->number, Aborted("tasks that were killed have left nothing to save"));
  }
}

// The newest is of before, or of now.
void CheckpointSaver::ScheduleAfter(const Status& asked_for) {
  const std::int64_t now = MonotonicNs(), newest = saved_step_.value_or(0);
  if (asked_for.ok()) {
    schedule_.Saved(now, newest);
  } else {
    const bool soon = schedule_.Repeats() && asked_for.code() != Code::kDeadlineExceeded &&
                      asked_for.code() != Code::kCancelled;
    (void)schedule_.Failed(now, newest, now, soon);
  }
}

void CheckpointSaver::TellOfFailure(const Status& why, bool soon,
                                    std::chrono::nanoseconds pause) const {
  const bool waits_for_ps =
      others_ != nullptr && IsMissing(why.code()) && why.message().starts_with("ps/");
  const std::string next = !schedule_.Repeats() ? "the next one is the last one"
                           : soon ? fmt::format("another is tried in {:g} s", ToSeconds(pause))
                                  : fmt::format(
                                        "another is tried when it is due, {:g} s from now at the "
                                        "earliest",
                                        ToSeconds(pause));
  LogWarning("no checkpoint was saved to {}: {}; {}, and {}", config_.checkpoints.folder,
             why.message(),
             waits_for_ps ? "whoever needs that ps waits for it, for --ps_wait at most"
                          : "training goes on",
             next);
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
      SayQuit();
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
    SayQuit();
  }
  wake_.notify_all();
}

void CheckpointSaver::GiveUp() {
  given_up_.store(true, std::memory_order_relaxed);
  SayQuit();
}

void CheckpointSaver::SayQuit() {
  quit_.store(true, std::memory_order_seq_cst);
  interrupted_.store(true, std::memory_order_seq_cst);
}

void CheckpointSaver::Heed(std::shared_ptr<SaveWishes> wishes) {
  wishes_ = std::move(wishes);
  if (wishes_) wishes_->Tell(this, [this] { interrupted_.store(true, std::memory_order_seq_cst); });
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
  asked_for_ = kAskedFor;
  SetAlive(alive);
  Status ended = EndThread(at_end, deadline);
  SetAlive({});
  asked_for_ = "the last checkpoint";
  if (hangs_) return ended;
  just_saved_ = saved_step_;
  if (!given_up_.load(std::memory_order_relaxed)) quit_.store(false, std::memory_order_relaxed);
  ScheduleAfter(ended);
  Start([this] { Run(); });
  return ended;
}

void CheckpointSaver::TakeScore(double accuracy, std::int64_t step, Deadline deadline) {
  if (!folder_ || hangs_ || thread_.joinable() || shards_.empty()) return;
  KeepIfBest(shards_[0].state->evaluated, accuracy, step);
  try {
    Start([this] { best_->Look(shards_[0], *folder_); });
  } catch (const std::system_error&) {
    busy_ = false;
    best_->Look(shards_[0], *folder_);  // no thread is left for it
  }
  if (thread_.joinable() && !AwaitThread(deadline)) {
    LogWarning("{} has not answered in time, and is left to itself", config_.checkpoints.folder);
  }
}

bool CheckpointSaver::Leave(Deadline deadline) {
  GiveUp();
  wake_.notify_all();
  return AwaitThread(deadline);
}

Status CheckpointSaver::SaveLast(std::optional<AtEnd> at_end, Deadline deadline) {
  const auto before = saved_step_;
  Status saved = SaveAskedFor(asked_for_, at_end, deadline, quit_);
  if (!saved.ok()) ++facts_.failed;
  if (saved_step_ != before) last_step_ = saved_step_;
  best_->Look(shards_[0], *folder_);
  return saved;
}

Status CheckpointSaver::SaveAskedFor(const char* what, std::optional<AtEnd> at_end,
                                     Deadline deadline, const std::atomic<bool>& quit) {
  const Status saved = Step() == saved_step_ ? Status() : Save(at_end, deadline, quit);
  if (saved.ok()) return {};
  return saved.WithContext(fmt::format(
      "{} was not saved to {}, where {}", what, config_.checkpoints.folder,
      saved_step_ ? "the newest is " + CheckpointName(*saved_step_) : "none is of this job"));
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

Status CheckpointSaver::Save(std::optional<AtEnd> at_end, Deadline deadline,
                             const std::atomic<bool>& quit) {
  PASSEL_RETURN_IF_ERROR(folder_->CheckOwner());
  const SavedJob job{config_, settings_,   plan_, data_,        shards_,
                     names_,  begun_with_, away_, others_.get()};
  const SaveLimits limits{quit, deadline, [this] { CallAlive(); }};
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
