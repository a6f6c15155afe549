// checkpoints.h - the checkpoints of a job with a program's own variables, in the process that
// makes them: the chief, or a job of one process.
//
// Threads    One at a time; saving has one of its own.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "capi/settings.h"
#include "cluster/worker_names.h"
#include "job/checkpoint_saver.h"
#include "store/parameter_store.h"
#include "store/store_plan.h"

namespace passel::capi {

/// What others do while a checkpoint is made between two steps of this worker.
enum class Others { kNone, kWait, kTrain };

class Checkpoints {
 public:
  /// Before the store is opened, so that what is wrong is said before the job begins. `begun`: the
  /// variables have values already. Errors: those of CheckpointSaver::Open(); kInvalidArgument for
  /// names of variables that a file cannot have.
  static Result<std::unique_ptr<Checkpoints>> Open(const Settings& settings, const StorePlan& plan,
                                                   bool begun);
  /// Ends what is under way. A disk that hangs keeps what it needs.
  ~Checkpoints();

  /// Whether the job goes on from a checkpoint.
  bool resumes() const { return !saver_->resume_from().empty(); }
  /// Writes that one into a store without values.
  Status Restore(ParameterStore& store) const;
  /// From now on they are made by time and steps. `shards` outlive this.
  void Begin(std::vector<ShardMemory> shards, const WorkerNames& names);
  /// Makes one now and returns its global step. Errors: kFailedPrecondition without a folder; those
  /// of CheckpointSaver::SaveNow(); those of the store, which meets others meanwhile.
  Result<std::int64_t> Save(Others others, ParameterStore& store, Deadline deadline);
  /// A disk does not answer: the shards must stay, and this be destroyed before them.
  bool hangs() const { return saver_->hangs(); }
  /// The last one.
  Status End(Others others, ParameterStore& store);

 private:
  Checkpoints(const StorePlan& plan, bool makes_any, bool consistent)
      : plan_(plan), makes_any_(makes_any), consistent_(consistent) {}
  const StorePlan plan_;
  const bool makes_any_, consistent_;
  std::unique_ptr<job::CheckpointSaver> saver_;
};

/// As Save(), where the ps make the checkpoints of this job: has ps/0 make one. Errors: those of
/// job::AskForSave() and of the store.
Result<std::int64_t> SaveElsewhere(const Settings& settings, Others others, ParameterStore& store,
                                   Deadline deadline);

/// When nobody trains any more: saves what came after the newest checkpoint of the job. A disk that
/// does not answer sets `hangs`: the shards must stay. Errors: those of CheckpointSaver::Open() and
/// SaveOnce().
Status SaveTheRest(const Settings& settings, const StorePlan& plan, std::vector<ShardMemory> shards,
                   const WorkerNames& names, bool* hangs);

}  // namespace passel::capi
