// checkpoint_save.h - one checkpoint of a job: it is copied, written and committed.
//
// Modes without rounds: blocks are copied one by one while others write them; nobody waits, and the
// checkpoint is of a stretch of steps. Modes with rounds, and all with
// config.checkpoints.consistent: everyone meets between two steps (store/meeting.h) until all is
// copied, and it is of one step.
//
// Values in the memory of a GPU: what is said of their shadow, which the workers renew for this
// (job/shadow_copy.h).
//
// A part of each shard is written on a thread of its own, or by its own ps on another host. A set
// of which one part fails is given up, and leaves nothing.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cluster/worker_names.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_source.h"
#include "job/job_config.h"
#include "store/consistent_copy.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::job {

class OtherParts;  // job/other_parts.h

/// Of the last checkpoint: whether anybody changes the values while it is saved.
enum class AtEnd { kNobodyTrains, kOthersTrain };

/// A job that is saved. Nothing is copied: all of it outlives the save.
struct SavedJob {
  const JobConfig& config;  ///< REQUIRES: FitToData(&config)
  const JobSettings& settings;
  const StorePlan& plan;
  const std::string& data;              ///< a JSON object; "": not known
  std::span<const ShardMemory> shards;  ///< the lead's first; they have values
  const WorkerNames& names;
  std::string_view begun_with = {};  ///< Beginning::begun_with
  /// Workers behind those of the plan, of the checkpoint that it began with: where they are in
  /// their data, for a job that has them again.
  std::span<const JobProgress::Worker> away = {};
  /// Those that save all shards but the lead's, which `shards` has alone then. Null: nobody does.
  OtherParts* others = nullptr;
};

/// What a checkpoint of the plan takes on the disk, about.
std::uint64_t CheckpointBytes(const StorePlan& plan);

struct SaveOutcome {
  /// The step of the newest checkpoint afterwards; nothing: there is none.
  std::optional<std::int64_t> newest;
  bool written = false;                 ///< else that is the one of before
  std::uint64_t bytes = 0;              ///< of all files
  MeetingCost meeting;                  ///< what workers waited for it
  std::chrono::nanoseconds copying{0};  ///< until all was copied
  std::chrono::nanoseconds writing{0};  ///< from then on
};

/// Saves the job as it is. `saved`: the step of its newest checkpoint. None is written if the job
/// has not gone on since, or if tasks that were killed have left nothing that is worth a
/// checkpoint, which the log says. On error the folder is as before.
/// Errors: those of `limits`, of Meeting, of WritePart() and of CheckpointFolder::Commit();
/// kDiverged for values that are not finite, or with which a worker has found no finite loss;
/// kAlreadyExists if the folder had one of that step that this job did not save;
/// kResourceExhausted without space for it, on the disk or in memory.
Result<SaveOutcome> SaveCheckpoint(const SavedJob& job, std::optional<std::int64_t> saved,
                                   std::optional<AtEnd> at_end, const SaveLimits& limits,
                                   CheckpointFolder& folder);

}  // namespace passel::job
