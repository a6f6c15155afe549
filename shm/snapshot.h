// snapshot.h - the values of a running job, for evaluation and prediction beside the training.
//
// The asker tells each ps that it is a process of the same user (the kernel vouches for the uid,
// on both sides), and gets copies of the values that nobody can change any more. It never maps an
// arena, so it can disturb nobody; the job's token, which opens the arena itself, is not needed.
// The training pays for one pass over the values per snapshot, made by the ps, which is not on the
// path of any update.
//
//   Result<Snapshot> now = TakeSnapshot("my-job", Deadline::After(std::chrono::seconds(10)));
//   layout.Bind(now->shard_values(), &parts);  // ModelLayout, src/train/model_plan.h
//
// To follow a job call it again and again: nothing is kept between calls.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "shm/rendezvous_client.h"
#include "store/store_plan.h"

namespace passel::shm {

/// Values of all shards, at one time or nearly so. Move-only; const calls may run concurrently.
class Snapshot {
 public:
  const StorePlan& plan() const { return plan_; }
  /// True: exactly the values after global_step(); always strived for in the round modes, and
  /// never so in the others. False: the values are of updates global_step() to last_global_step(),
  /// mixed (in the lock-free modes also of those that had begun by then).
  bool exact() const { return exact_; }
  std::int64_t global_step() const { return lead_.global_step; }
  std::int64_t last_global_step() const { return lead_.last_global_step; }
  /// What the job trains on, as "data" in a status (shm/rendezvous_client.h): JSON; "null": not
  /// known.
  const std::string& data() const { return lead_.data; }
  /// Set where the values of the job are in the memory of a GPU, and these were copied from there
  /// so long ago: global_step() and last_global_step() are those of that copy.
  std::optional<std::int64_t> shadow_age_ns() const { return lead_.shadow_age_ns; }
  /// Of TakeConsistentSnapshot(): what the workers waited.
  const MeetingCost& meeting_cost() const { return meeting_cost_; }
  /// Per shard float[plan().variables.ShardFloats(shard)], laid out as in the arena, 64-byte
  /// aligned; valid as long as this snapshot. Who writes there changes nothing but this snapshot.
  std::span<const float* const> shard_values() const { return shard_values_; }

 private:
  friend class SnapshotTaker;
  struct Unmap {
    std::size_t bytes;
    void operator()(const float* values) const;
  };
  StorePlan plan_;
  bool exact_ = false;
  MeetingCost meeting_cost_;
  ShardSnapshot lead_;  // of ps/0; its descriptors are not kept
  std::vector<std::unique_ptr<const float, Unmap>> mapped_;  // [shards]
  std::vector<const float*> shard_values_;                   // the same
};

/// Waits until the chief has written the first values; a ps that is started again meanwhile is
/// asked again. In round modes with several shards it is tried, for at most a second, to get all
/// of them after the same round.
/// Errors: kNotFound when no such job of this user runs on this host; kPermissionDenied when
/// another user has its name; kDeadlineExceeded, naming who is waited for; kUnavailable when the
/// job ended meanwhile; kResourceExhausted when there is no memory for the copy; kDataLoss.
Result<Snapshot> TakeSnapshot(const std::string& job_id, Deadline deadline);

/// Of `begun`: the job was there before, so that one that is not is started again, or has ended.
enum class JobIs { kWanted, kBegun };
/// How far the job is, once it has first values. Errors: as TakeSnapshot().
Result<std::int64_t> StepOfJob(const std::string& job_id, JobIs begun, Deadline deadline);
/// Its plan, likewise.
Result<StorePlan> PlanOfJob(const std::string& job_id, JobIs begun, Deadline deadline);

/// The same in any mode exactly after one step: the workers wait between two steps while all shards
/// are copied, which meeting_cost() tells. Errors: also kFailedPrecondition when they cannot meet,
/// or where the values are in the memory of a GPU; kAborted when they went on too early each time.
Result<Snapshot> TakeConsistentSnapshot(const std::string& job_id, Deadline deadline);

}  // namespace passel::shm
