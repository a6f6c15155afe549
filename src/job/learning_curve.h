// learning_curve.h - loss and accuracy over the steps of a job, in a bounded number of points.

#pragma once

#include <cstdint>
#include <vector>

#include "job/job_status.h"

namespace passel::job {

/// Mean of the workers that have made a step, each of its latest batch, before that was pushed.
struct BatchResults {
  int workers = 0;  ///< that have made a step; 0: the others mean nothing
  double loss = 0, accuracy = 0;
};
BatchResults LatestBatches(const JobStatus& status);

struct CurvePoint {
  double seconds = 0;  ///< since the first step of any worker
  std::int64_t global_step = 0;
  double loss = 0, accuracy = 0;  ///< as LatestBatches()
};

/// The first point and the last one are those of the first and the last call. Points between have
/// about the same distance in time: when there are too many every other one goes.
class LearningCurve {
 public:
  static constexpr std::size_t kMostPoints = 256;

  /// `now_ns`: MonotonicNs() when `status` was read.
  void Add(const JobStatus& status, std::int64_t now_ns);
  const std::vector<CurvePoint>& points() const { return points_; }

 private:
  std::vector<CurvePoint> points_;
  double distance_ = 0.1;  // seconds; doubled when every other point goes
  bool last_may_go_ = false;
};

}  // namespace passel::job
