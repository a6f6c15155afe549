// job_keeper.h - what ps/0 of a job by hand does for the job as a whole: it holds the arenas of all
// ps, and saves checkpoints while there is no chief that does.
//
// A ps that comes back when no worker is left finds its arena here. While the chief is gone and
// others train, a CheckpointSaver of ours owns the folder; we let go of it when a chief comes. When
// the job ends, what the chief has not saved is saved.
//
// Whoever calls this serves the job, so nothing here waits for a disk but SaveLast(), which can be
// told to give up: what hangs is left behind with the arenas that it reads.
//
// With ps on several hosts no chief has all arenas, and we save whatever the chief does: each of
// the others writes its own part (job/other_parts.h).
//
// Threads    One at a time; savers have threads of their own.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "job/checkpoint_saver.h"
#include "job/disk_call.h"
#include "job/job_config.h"
#include "job/other_parts.h"
#include "job/save_wishes.h"
#include "job/task.h"
#include "shm/arena.h"

namespace passel::job {

/// How long JobKeeper::SaveLast() may take.
struct LastSave {
  Deadline workers;  ///< for those that are told to leave
  Deadline limit;    ///< for all of it
  std::chrono::nanoseconds limit_when_asked;
  bool asked;  ///< the task was told to go
  /// The task was told to go since the last call. The first time it waits no longer for workers;
  /// for the disk limit_when_asked from the time that it is asked, and no longer once it is asked
  /// again.
  std::function<bool()> signalled;
};

class JobKeeper {
 public:
  /// `task` outlives it. `wishes`: for checkpoints; null: nobody has any. REQUIRES: it is ps/0 of a
  /// job by hand.
  JobKeeper(const Task& task, const JobConfig& config, std::shared_ptr<SaveWishes> wishes);
  ~JobKeeper();

  /// To be called every now and then. `own`: the arena of shard 0, of which we keep a mapping of
  /// our own. `chief_is_here`: a process that is the chief, or is about to be, lives. `data`: what
  /// the chief has told of its data, a JSON object, or "". Takes at most 150 ms.
  void Look(const shm::Arena& own, bool chief_is_here, const std::string& data);

  /// The descriptor of the arena of that shard as we hold it; -1: we do not.
  int ArenaOf(int shard) const;

  /// Unmaps all that it holds, but what a disk that hangs is still to get. Takes at most 1 s.
  void LetGo();

  /// After all else, when the job has ended: the ps of other hosts may go.
  void DismissOthers();

  /// The last checkpoint, unless a chief that lives makes it. Waits for workers, then for who owns
  /// the folder and for the arenas of other ps, some seconds each. What cannot be saved because a
  /// ps is gone is a warning. Whoever wishes for a checkpoint hears of this one. Errors: those of
  /// CheckpointSaver::End().
  Status SaveLast(const LastSave& how);
  /// The next start of the job goes on from a checkpoint: of the last step, which that made or
  /// found made; or, since a ps of another host has gone, of the newest before.
  bool goes_on() const { return saved_last_.has_value() || former_counts_; }

 private:
  // Of a saver that is to leave before its memory is needed.
  static constexpr std::chrono::seconds kLeaveLimit{1};
  using Opening = DiskCall<Result<std::unique_ptr<CheckpointSaver>>>;
  // It saves while there is no chief.
  struct StandIn {
    std::vector<std::shared_ptr<shm::Arena>> arenas;
    std::unique_ptr<CheckpointSaver> saver;  // before they are unmapped
    double since;                            // WallSeconds()
  };

  Status MakeLast(const LastSave& how);
  void RefuseWishes(const Status& why);
  bool HoldsAll(std::uint64_t cohort) const;
  void Hold(const shm::Arena& own);
  Status Fetch(int shard, Deadline deadline);
  std::string FetchMissing();
  bool ChiefNeverSaves(const ShardMemory& lead) const;
  bool ChiefIsGone(const ShardMemory& lead) const;
  bool SomebodyTrains(const ShardMemory& lead) const;
  bool IsNeeded(bool chief_is_here);
  void OpenStandIn();
  void BeginStandIn();
  void StandInWith(std::unique_ptr<CheckpointSaver> saver);
  void NobodySaves(const Status& why);
  bool LastRetiredIsGone();
  void Retire(Deadline deadline);
  Result<Opening> BeginOpening(bool wait) const;
  std::vector<ShardMemory> Shards() const;

  const Task& task_;
  JobConfig config_;
  std::string data_;
  std::vector<std::shared_ptr<shm::Arena>> held_;                          // [ps]; null: not yet
  std::uint64_t cohort_ = 0;                                               // of held_[0]
  std::int64_t next_fetch_ns_ = 0, next_open_ns_ = 0, gone_since_ns_ = 0;  // MonotonicNs()
  std::optional<Opening> opening_;  // of a saver that is to stand in
  std::int64_t opening_since_ns_ = 0;
  std::optional<std::int64_t> saved_last_;  // global step
  bool former_counts_ = false;
  std::shared_ptr<OtherParts> others_;  // null: all ps are on one host, or there is no folder
  const std::shared_ptr<SaveWishes> wishes_;
  std::unique_ptr<StandIn> stand_in_;
  std::vector<std::unique_ptr<StandIn>> retired_;  // their threads have not ended yet
};

}  // namespace passel::job
