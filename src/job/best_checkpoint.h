// best_checkpoint.h - which checkpoint of a job is the best: by accuracy on the validation images.
//
// A score is of one global step; each worker keeps its best (WorkerCounters), and ps/0 that of the
// evaluators (ShardState). Who owns the folder is the only one that looks at them and marks, so
// whoever evaluates needs to wait for nobody. When one is better
// than all before it, also of former jobs in the folder, the best checkpoint is the first one of
// this job of that step or a later one: one that is there, or the next. Of equals the first stays.
//
// Threads    One thread at a time.

#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/status.h"
#include "io/checkpoint_folder.h"
#include "store/shard_memory.h"

namespace passel::job {

/// Nothing before the first.
std::optional<ValidationScore> BestScoreOf(const ValidationWords& words);

class BestCheckpointMarker {
 public:
  /// Takes the best there is, and its score, from the folder, and leaves alone what it has.
  /// Errors: those of BestCheckpoint().
  static Result<BestCheckpointMarker> Create(const CheckpointFolder& folder);

  /// Looks whether there is a better score, or a checkpoint for one; then marks it, and says so in
  /// the log. Costs a few loads where nothing is new. Problems are warnings.
  void Look(const ShardMemory& lead, CheckpointFolder& folder);

 private:
  std::set<std::string> former_;         // sets of jobs before this
  std::optional<ValidationScore> best_;  // of all scores
  bool waits_ = false;                   // no checkpoint has it yet
};

}  // namespace passel::job
