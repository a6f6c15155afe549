#include "job/learning_curve.h"

#include <algorithm>
#include <cstddef>

namespace passel::job {

BatchResults LatestBatches(const JobStatus& status) {
  BatchResults results;
  for (const WorkerStatus& w : status.workers) {
    if (w.last_step_ns == 0) continue;
    results.loss += w.loss;
    results.accuracy += w.accuracy;
    ++results.workers;
  }
  if (results.workers > 0) {
    results.loss /= results.workers;
    results.accuracy /= results.workers;
  }
  return results;
}

void LearningCurve::Add(const JobStatus& status, std::int64_t now_ns) {
  const BatchResults batches = LatestBatches(status);
  const std::int64_t first_ns = FirstStepNs(status);
  if (batches.workers == 0 || first_ns == 0) return;
  CurvePoint point{1e-9 * static_cast<double>(now_ns - first_ns), status.global_step, batches.loss,
                   batches.accuracy};
  // The newest point stands for "now" until one that is far enough from the one before it.
  if (last_may_go_) points_.pop_back();
  // The end of training may have been before somebody last looked.
  if (!points_.empty()) point.seconds = std::max(point.seconds, points_.back().seconds);
  last_may_go_ = !points_.empty() && point.seconds - points_.back().seconds < distance_;
  points_.push_back(point);
  if (points_.size() <= kMostPoints || last_may_go_) return;
  for (std::size_t i = 1; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
  points_.resize((points_.size() + 1) / 2);
  distance_ *= 2;
}

}  // namespace passel::job
