// What ps/0 of a job by hand does when that ends.

#include <fmt/core.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/patience.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "job/job_keeper.h"
#include "store/membership.h"
#include "train/checkpoint_watch.h"

namespace passel::job {
namespace {

// Of another ps; there is more time than before.
constexpr std::chrono::seconds kLastFetchLimit{2};
// For other ps to hear that the job is over.
constexpr std::chrono::seconds kDismissLimit{2};
// From the last step of a chief to its exit, as a rule.
constexpr std::chrono::seconds kChiefLimit{2};
// How often a disk that is waited for is asked whether it has answered.
constexpr std::chrono::milliseconds kAskDiskAgain{20};

// Until when a last save is waited for, which signals bring nearer.
class Haste {
 public:
  explicit Haste(const LastSave& how) : how_(how), asked_(how.asked), limit_(how.limit) {}

  Deadline limit() const { return limit_; }
  /// While workers are waited for: wait no longer.
  bool Signalled() {
    const bool signalled = how_.signalled();
    if (signalled) Hurry();
    return signalled;
  }
  bool Over() {
    if (how_.signalled()) {
      over_ = asked_;
      Hurry();
    }
    return over_ || limit_.Expired();
  }
  /// Nothing if it is over before.
  template <typename T>
  std::optional<T> Await(DiskCall<T> call) {
    while (!call.Done(kAskDiskAgain)) {
      if (Over()) return {};
    }
    return call.Take();
  }

 private:
  void Hurry() {
    if (!asked_) limit_ = limit_.Sooner(how_.limit_when_asked);
    asked_ = true;
  }

  const LastSave& how_;
  bool asked_, over_ = false;
  Deadline limit_;
};

}  // namespace

void JobKeeper::DismissOthers() {
  if (!others_) return;
  Retire(Deadline::After(kLeaveLimit));
  if (LastRetiredIsGone()) others_->Dismiss(Deadline::After(kDismissLimit));
}

Status JobKeeper::SaveLast(const LastSave& how) {
  const Status saved = MakeLast(how);
  if (!wishes_) return saved;
  if (saved.ok() && saved_last_) {
    wishes_->Close(*saved_last_);
  } else {
    wishes_->Close(saved.ok() ? Unavailable("ps/0 has ended without one") : saved);
  }
  return saved;
}

Status JobKeeper::MakeLast(const LastSave& how) {
  const std::string& folder = config_.checkpoints.folder;
  if (folder.empty() || !held_[0]) return {};
  const ShardMemory& lead = held_[0]->memory();
  Haste haste(how);
  const double begin = WallSeconds();
  for (;;) {
    (void)MarkDeadByKernel(lead);
    if (!SomebodyTrains(lead)) break;
    if (MayCome(StateOf(lead, task_.Names().chief).phase) && !ChiefIsGone(lead)) {
      return {};  // it saves
    }
    if (how.workers.Expired() || haste.Signalled()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const bool others_train = SomebodyTrains(lead);
  const std::int64_t step = lead.state->global_step.load(std::memory_order_acquire);
  const auto newest = [&] {
    return haste.Await(DiskCall<std::string>([folder] { return NewestCheckpointIn(folder); }));
  };
  // Of what was saved when the chief had closed the file of the summaries.
  const auto tell = [&] {
    if (!stand_in_ || config_.summaries.folder.empty()) return;
    const double since = ChiefNeverSaves(lead) ? begin : stand_in_->since;
    (void)haste.Await(DiskCall<bool>([summaries = config_.summaries.folder, folder, since] {
      TellOfCheckpoints(summaries, CheckpointWatch(folder, since).News());
      return true;
    }));
  };
  const auto hangs = [&] {
    return DeadlineExceeded(fmt::format(
        "no checkpoint of global step {} was saved to {}: the disk has not answered in time, and "
        "is left to itself",
        step, folder));
  };
  std::optional<std::string> name = newest();
  // It may be saving that, or be about to exit.
  for (Patience patience(Deadline::After(kChiefLimit));
       name && *name != CheckpointName(step) && !ChiefIsGone(lead) && patience.Again();) {
    name = newest();
  }
  if (ChiefIsGone(lead) && name) name = newest();
  if (!name) return hangs();
  if (*name == CheckpointName(step)) {
    saved_last_ = step;
    tell();
    return {};
  }
  const std::string missing = FetchMissing();
  if (!missing.empty()) {
    LogWarning(
        "no checkpoint of global step {} was saved to {}, where the newest is {}: the values of {}",
        step, folder, *name, missing);
    return {};
  }
  while (!LastRetiredIsGone()) {
    if (haste.Over()) return hangs();
    std::this_thread::sleep_for(kAskDiskAgain);
  }
  if (!stand_in_) {
    std::optional<Opening> opening = std::exchange(opening_, {});
    if (!opening) {
      PASSEL_ASSIGN_OR_RETURN(Opening begun, BeginOpening(/*wait=*/true));
      opening.emplace(std::move(begun));
    }
    auto saver = haste.Await(std::move(*opening));
    if (!saver) return hangs();
    if (!saver->ok()) {
      // It saves itself, and takes longer than we wait.
      if (saver->status().code() == Code::kDeadlineExceeded && !ChiefIsGone(lead)) return {};
      return saver->status().WithContext(
          fmt::format("no checkpoint of global step {} was saved", step));
    }
    StandInWith(std::move(**saver));
  }
  std::optional<AtEnd> at_end;  // all meet
  if (!others_train) {
    at_end = AtEnd::kNobodyTrains;
  } else if (const auto wish = wishes_ ? wishes_->Pending() : std::nullopt) {
    at_end = wish->at_end;
  }
  CheckpointSaver& saver = *stand_in_->saver;
  Status saved = saver.SaveOnce(Shards(), task_.Names(), at_end, haste.limit(), [&] {
    if (haste.Over()) saver.GiveUp();
  });
  if (saved.ok()) saved_last_ = saver.newest_after_end();
  former_counts_ = others_ && IsMissing(saved.code()) && !name->empty();
  tell();
  return saved;
}

// "ps/1 are not here: why"; "" if all are held, or saved by others.
std::string JobKeeper::FetchMissing() {
  if (others_) return {};
  const Deadline deadline = Deadline::After(kLastFetchLimit);
  for (std::size_t s = 1; s < held_.size(); ++s) {
    if (held_[s]) continue;
    const Status fetched = Fetch(static_cast<int>(s), deadline);
    if (!fetched.ok()) return fmt::format("ps/{} are not here: {}", s, fetched.message());
  }
  return {};
}

}  // namespace passel::job
