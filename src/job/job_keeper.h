// job_keeper.h - what ps/0 of a job by hand does for the job as a whole: it holds the arenas of all
// ps, and saves checkpoints while there is no chief that does.
//
// A ps that comes back when no worker is left finds its arena here. While the chief is gone and
// others train, a CheckpointSaver of ours owns the folder; we let go of it when a chief comes. When
// the job ends, what the chief has not saved is saved.
//
// Threads    One at a time; the saver has one of its own.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "job/checkpoint_saver.h"
#include "job/job_config.h"
#include "job/task.h"
#include "shm/arena.h"

namespace passel::job {

class JobKeeper {
 public:
  /// `task` outlives it. REQUIRES: it is ps/0 of a job by hand.
  JobKeeper(const Task& task, const JobConfig& config);

  /// To be called every now and then. `own`: the arena of shard 0, of which we keep a mapping of
  /// our own. `chief_is_here`: a process that is the chief, or is about to be, lives. `data`: what
  /// the chief has told of its data, a JSON object, or "". Takes at most 100 ms.
  void Look(const shm::Arena& own, bool chief_is_here, const std::string& data);

  /// The descriptor of the arena of that shard as we hold it; -1: we do not.
  int ArenaOf(int shard) const;

  /// Unmaps all that it holds.
  void LetGo();

  /// The last checkpoint, unless a chief that lives makes it. Waits until `workers` for those that
  /// are told to leave (`enough` ends that), then for who owns the folder and for the arenas of
  /// other ps, some seconds each. What cannot be saved because a ps is gone is a warning. Errors:
  /// those of CheckpointSaver::End(), with which it ends by `limit`.
  Status SaveLast(Deadline workers, Deadline limit, const std::function<bool()>& enough);

 private:
  bool HoldsAll(std::uint64_t cohort) const;
  void Hold(const shm::Arena& own);
  Status Fetch(int shard, Deadline deadline);
  std::string FetchMissing();
  std::string NewestCheckpoint() const;
  bool ChiefIsGone(const ShardMemory& lead) const;
  bool SomebodyTrains(const ShardMemory& lead) const;
  void StandIn(bool chief_is_here);
  Result<std::unique_ptr<CheckpointSaver>> OpenSaver(bool wait) const;
  std::vector<ShardMemory> Shards() const;

  const Task& task_;
  JobConfig config_;
  std::string data_;
  std::vector<std::unique_ptr<shm::Arena>> held_;                          // [ps]; null: not yet
  std::uint64_t cohort_ = 0;                                               // of held_[0]
  std::int64_t next_fetch_ns_ = 0, next_open_ns_ = 0, gone_since_ns_ = 0;  // MonotonicNs()
  std::unique_ptr<CheckpointSaver> saver_;  // while we stand in; before held_ is unmapped
};

}  // namespace passel::job
