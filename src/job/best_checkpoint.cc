#include "job/best_checkpoint.h"

#include <atomic>

#include "base/log.h"

namespace passel::job {

std::optional<ValidationScore> BestScoreOf(const ValidationWords& words) {
  const std::int64_t step = words.step.load(std::memory_order_acquire);
  const double accuracy = words.accuracy.load(std::memory_order_acquire);
  if (step == 0 || words.step.load(std::memory_order_acquire) != step) return {};
  return ValidationScore{accuracy, step};
}

Result<BestCheckpointMarker> BestCheckpointMarker::Create(const CheckpointFolder& folder) {
  BestCheckpointMarker marker;
  for (const auto& entry : folder.index().kept) marker.former_.insert(entry.name);
  PASSEL_ASSIGN_OR_RETURN(const std::optional<BestEntry> best, BestCheckpoint(folder.path()));
  if (best && PartsOf(folder.path(), best->name).ok()) marker.best_ = best->score;
  return marker;
}

void BestCheckpointMarker::Look(const ShardMemory& lead, CheckpointFolder& folder) {
  const auto look = [this](const ValidationWords& words) {
    const auto score = BestScoreOf(words);
    if (!score || (best_ && score->accuracy <= best_->accuracy)) return;
    best_ = score;
    waits_ = true;
  };
  for (int worker = 0; worker < lead.num_workers; ++worker) {
    look(lead.tasks[worker].counters.validation);
  }
  look(lead.state->evaluated);
  if (!waits_) return;
  for (const auto& entry : folder.index().kept) {
    if (former_.contains(entry.name) || *StepOfCheckpoint(entry.name) < best_->step) continue;
    waits_ = false;
    if (const Status marked = folder.MarkBest(entry.name, *best_); !marked.ok()) {
      LogWarning("{} is not marked as the best: {}", folder.PathOf(entry.name), marked.message());
    } else {
      LogInfo("{} is the best checkpoint: validation accuracy {:.4f} at global step {}",
              folder.PathOf(entry.name), best_->accuracy, best_->step);
    }
    return;
  }
}

}  // namespace passel::job
