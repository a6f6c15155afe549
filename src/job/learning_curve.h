// learning_curve.h - how a job went, over its steps: loss, accuracy, speed, staleness, in a bounded
// number of points.

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

/// NaN: there is nothing that it could be computed from.
struct CurvePoint {
  double seconds = 0;  ///< since the first step of any worker
  std::int64_t global_step = 0;
  double loss = 0, accuracy = 0;  ///< as LatestBatches()
  double steps_per_second = 0;    ///< local steps of all workers, since the point before
  /// In updates, of the gradients applied since the point before; as exact as their histogram.
  double staleness_mean = 0, staleness_p99 = 0;
  std::uint64_t dropped = 0;  ///< gradients, so far
  int workers = 0;            ///< that run, or have ended in good order
};

/// The first point and the last one are those of the first and the last call. Points between have
/// about the same distance in time: when there are too many every other one goes, and what is
/// counted between two points is then counted between those that are left.
class LearningCurve {
 public:
  static constexpr std::size_t kMostPoints = 256;

  /// `now_ns`: MonotonicNs() when `status` was read.
  void Add(const JobStatus& status, std::int64_t now_ns);
  std::vector<CurvePoint> points() const;

 private:
  // What was seen at a point, counted from the beginning of the job.
  struct Look {
    CurvePoint point;  // without what is counted since the point before
    std::uint64_t local_steps = 0;
    std::vector<BucketCount> staleness;
  };
  static void CountBetween(const Look& before, const Look& look, CurvePoint* point);

  std::vector<Look> looks_;
  double distance_ = 0.1;  // seconds; doubled when every other point goes
  bool last_may_go_ = false;
};

}  // namespace passel::job
