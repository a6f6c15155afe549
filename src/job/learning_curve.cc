#include "job/learning_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace passel::job {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// It left, and others train.
bool IsAway(const JobStatus& status, const WorkerStatus& worker) {
  return worker.member.phase == Phase::kLeft &&
         std::ranges::any_of(status.workers, [](const WorkerStatus& w) {
           return w.member.phase == Phase::kRunning;
         });
}

// It runs, or it has ended in good order.
bool IsWell(const JobStatus& status, const WorkerStatus& worker) {
  const Phase phase = worker.member.phase;
  return phase == Phase::kRunning || phase == Phase::kDone ||
         (phase == Phase::kLeft && !IsAway(status, worker));
}

// What `now` has more than `before`. Both are ascending, and of the same buckets.
std::vector<BucketCount> Since(const std::vector<BucketCount>& before,
                               const std::vector<BucketCount>& now) {
  std::vector<BucketCount> more;
  auto old = before.begin();
  for (const BucketCount& bucket : now) {
    while (old != before.end() && old->least < bucket.least) ++old;
    const std::uint64_t had = old != before.end() && old->least == bucket.least ? old->count : 0;
    // An arena that was begun anew has counted less.
    if (bucket.count > had) more.push_back({bucket.least, bucket.most, bucket.count - had});
  }
  return more;
}

double Mean(const std::vector<BucketCount>& buckets) {
  double sum = 0, count = 0;
  for (const BucketCount& bucket : buckets) {
    const auto n = static_cast<double>(bucket.count);
    sum += n * 0.5 * (static_cast<double>(bucket.least) + static_cast<double>(bucket.most));
    count += n;
  }
  return count > 0 ? sum / count : kNone;
}

// The top of the bucket in which that share of the values is reached.
double Percentile(const std::vector<BucketCount>& buckets, double share) {
  double count = 0, reached = 0;
  for (const BucketCount& bucket : buckets) count += static_cast<double>(bucket.count);
  for (const BucketCount& bucket : buckets) {
    reached += static_cast<double>(bucket.count);
    if (reached >= std::ceil(share * count)) return static_cast<double>(bucket.most);
  }
  return kNone;
}

}  // namespace

BatchResults LatestBatches(const JobStatus& status) {
  BatchResults results;
  for (const WorkerStatus& w : status.workers) {
    if (w.last_step_ns == 0 || IsAway(status, w)) continue;
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
  Look look;
  look.point.seconds = 1e-9 * static_cast<double>(now_ns - first_ns);
  look.point.global_step = status.global_step;
  look.point.loss = batches.loss;
  look.point.accuracy = batches.accuracy;
  for (const WorkerStatus& w : status.workers) {
    look.point.dropped += w.counts[&WorkerCounters::dropped];
    if (IsWell(status, w)) ++look.point.workers;
  }
  look.local_steps = status.LocalStepsHere();
  look.staleness = status.staleness_buckets;
  // The newest point stands for "now" until one that is far enough from the one before it. Who
  // looked after the end of training saw no other than who looks at the end.
  const bool same = !looks_.empty() && look.point.seconds <= looks_.back().point.seconds &&
                    look.point.global_step == looks_.back().point.global_step &&
                    look.local_steps == looks_.back().local_steps;
  if (last_may_go_ || same) looks_.pop_back();
  // The end of training may have been before somebody last looked.
  if (!looks_.empty()) {
    look.point.seconds = std::max(look.point.seconds, looks_.back().point.seconds);
  }
  last_may_go_ = !looks_.empty() && look.point.seconds - looks_.back().point.seconds < distance_;
  looks_.push_back(std::move(look));
  if (looks_.size() <= kMostPoints || last_may_go_) return;
  for (std::size_t i = 1; 2 * i < looks_.size(); ++i) looks_[i] = std::move(looks_[2 * i]);
  looks_.resize((looks_.size() + 1) / 2);
  distance_ *= 2;
}

void LearningCurve::CountBetween(const Look& before, const Look& look, CurvePoint* point) {
  const double seconds = look.point.seconds - before.point.seconds;
  const double steps =
      static_cast<double>(look.local_steps) - static_cast<double>(before.local_steps);
  point->steps_per_second = seconds > 0 ? std::max(0.0, steps) / seconds : kNone;
  const std::vector<BucketCount> applied = Since(before.staleness, look.staleness);
  point->staleness_mean = Mean(applied);
  point->staleness_p99 = Percentile(applied, 0.99);
}

std::vector<CurvePoint> LearningCurve::points() const {
  std::vector<CurvePoint> points;
  const Look start;
  for (std::size_t i = 0; i < looks_.size(); ++i) {
    CurvePoint& point = points.emplace_back(looks_[i].point);
    // What was counted in a moment before the end says little: with it the distance before counts.
    const bool moment = last_may_go_ && i + 1 == looks_.size();
    const std::size_t apart = moment ? 2 : 1;
    CountBetween(i >= apart ? looks_[i - apart] : start, looks_[i], &point);
  }
  return points;
}

}  // namespace passel::job
