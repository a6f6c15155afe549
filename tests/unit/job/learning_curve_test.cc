// The curve of a report keeps the shape of a job of any length.

#include "job/learning_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace passel::job::testing {
namespace {

constexpr std::int64_t kMs = 1'000'000;

JobStatus At(std::int64_t step) {
  JobStatus status;
  status.global_step = step;
  for (int worker = 0; worker < 2; ++worker) {
    WorkerStatus& w = status.workers.emplace_back();
    w.first_step_ns = 1000 * kMs;
    w.last_step_ns = 2000 * kMs;
    w.loss = worker == 0 ? 0.5 : 1.5;
    w.accuracy = 0.25;
  }
  status.workers.emplace_back().loss = 100;  // it has made no step
  return status;
}

TEST(LearningCurveTest, APointIsTheMeanOfTheWorkersThatCompute) {
  LearningCurve curve;
  curve.Add(JobStatus(), 900 * kMs);
  EXPECT_TRUE(curve.points().empty());
  curve.Add(At(7), 3000 * kMs);
  ASSERT_EQ(curve.points().size(), 1u);
  EXPECT_EQ(curve.points()[0].global_step, 7);
  EXPECT_DOUBLE_EQ(curve.points()[0].seconds, 2);
  EXPECT_DOUBLE_EQ(curve.points()[0].loss, 1);
  EXPECT_DOUBLE_EQ(curve.points()[0].accuracy, 0.25);
}

TEST(LearningCurveTest, WhatIsCountedBetweenPointsIsOfThatTimeAlone) {
  LearningCurve curve;
  JobStatus status = At(10);
  status.restored_local_steps = 5000;  // of a checkpoint
  status.local_steps = 5020;
  status.staleness_buckets = {{0, 0, 10}, {2, 2, 10}};
  status.workers[0].member.phase = Phase::kRunning;
  status.workers[1].member.phase = Phase::kDone;
  status.workers[2].member.phase = Phase::kDead;
  curve.Add(status, 3000 * kMs);
  status.local_steps = 5120;
  status.staleness_buckets = {{0, 0, 10}, {1, 1, 98}, {2, 2, 10}, {128, 143, 2}};
  status.workers[0].counts[&WorkerCounters::dropped] = 3;
  status.workers[1].counts[&WorkerCounters::dropped] = 4;
  curve.Add(status, 5000 * kMs);
  status.workers[0].member.phase = Phase::kLeft;
  status.local_steps = 5121;
  curve.Add(status, 5000 * kMs);  // no time later

  const std::vector<CurvePoint> points = curve.points();
  ASSERT_EQ(points.size(), 3u);
  EXPECT_DOUBLE_EQ(points[0].steps_per_second, 10) << "since the first step";
  EXPECT_DOUBLE_EQ(points[0].staleness_mean, 1);
  EXPECT_DOUBLE_EQ(points[0].staleness_p99, 2);
  EXPECT_EQ(points[0].dropped, 0u);
  EXPECT_EQ(points[0].workers, 2);
  EXPECT_DOUBLE_EQ(points[1].steps_per_second, 50);
  EXPECT_DOUBLE_EQ(points[1].staleness_mean, 0.98 + 0.02 * 135.5);
  EXPECT_DOUBLE_EQ(points[1].staleness_p99, 143);
  EXPECT_EQ(points[1].dropped, 7u);
  EXPECT_DOUBLE_EQ(points[2].steps_per_second, 50.5)
      << "a moment at the end has no speed of its own";
  EXPECT_EQ(points[2].workers, 2);
}

TEST(LearningCurveTest, WhatCannotBeCountedIsNoNumber) {
  LearningCurve curve;
  curve.Add(At(1), 1000 * kMs);  // the very moment of the first step
  JobStatus anew = At(5);
  anew.local_steps = 9;
  anew.staleness_buckets = {{3, 3, 5}};
  curve.Add(anew, 2000 * kMs);
  anew.local_steps = 4;  // the counters began anew
  anew.staleness_buckets = {{3, 3, 2}};
  curve.Add(anew, 3000 * kMs);
  const std::vector<CurvePoint> points = curve.points();
  ASSERT_EQ(points.size(), 3u);
  EXPECT_TRUE(std::isnan(points[0].steps_per_second));
  EXPECT_TRUE(std::isnan(points[0].staleness_mean));
  EXPECT_TRUE(std::isnan(points[0].staleness_p99));
  EXPECT_DOUBLE_EQ(points[1].staleness_mean, 3);
  EXPECT_DOUBLE_EQ(points[2].steps_per_second, 0);
  EXPECT_TRUE(std::isnan(points[2].staleness_p99));
}

TEST(LearningCurveTest, TimeDoesNotRunBackwards) {
  LearningCurve curve;
  curve.Add(At(7), 3000 * kMs);
  curve.Add(At(9), 2900 * kMs);  // the last step, which was before the last look
  ASSERT_EQ(curve.points().size(), 2u);
  EXPECT_EQ(curve.points()[1].global_step, 9);
  EXPECT_DOUBLE_EQ(curve.points()[1].seconds, 2);
}

TEST(LearningCurveTest, TheEndIsOnePointThoughSomebodyLookedLater) {
  LearningCurve curve;
  curve.Add(At(7), 2000 * kMs);
  curve.Add(At(9), 4000 * kMs);
  curve.Add(At(9), 3500 * kMs);  // the last step
  ASSERT_EQ(curve.points().size(), 2u);
  EXPECT_DOUBLE_EQ(curve.points()[1].seconds, 2.5);
}

TEST(LearningCurveTest, ALongJobHasFewPointsFromItsFirstToItsLast) {
  for (const std::int64_t every_ms : {20, 250}) {
    LearningCurve curve;
    const int calls = 5003;
    for (int i = 0; i < calls; ++i) {
      JobStatus status = At(i);
      status.local_steps = static_cast<std::uint64_t>(2 * i);
      status.staleness_buckets = {{1, 1, status.local_steps}};
      curve.Add(status, (1000 + i * every_ms) * kMs);
    }
    const auto& points = curve.points();
    ASSERT_LE(points.size(), LearningCurve::kMostPoints + 1);
    EXPECT_GE(points.size(), LearningCurve::kMostPoints / 2);
    EXPECT_EQ(points.front().global_step, 0);
    EXPECT_EQ(points.back().global_step, calls - 1);
    double widest = 0;
    for (std::size_t i = 1; i < points.size(); ++i) {
      ASSERT_GT(points[i].global_step, points[i - 1].global_step);
      widest = std::max(widest, points[i].seconds - points[i - 1].seconds);
      // However many points have gone between.
      ASSERT_NEAR(points[i].steps_per_second, 2000.0 / static_cast<double>(every_ms), 1e-6);
      ASSERT_DOUBLE_EQ(points[i].staleness_mean, 1);
    }
    const double even = points.back().seconds / static_cast<double>(points.size() - 1);
    EXPECT_LE(widest, 2.5 * even) << every_ms;
  }
}

}  // namespace
}  // namespace passel::job::testing
