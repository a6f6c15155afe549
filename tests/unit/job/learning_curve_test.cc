// The curve of a report keeps the shape of a job of any length.

#include "job/learning_curve.h"

#include <gtest/gtest.h>

#include <algorithm>

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

TEST(LearningCurveTest, TimeDoesNotRunBackwards) {
  LearningCurve curve;
  curve.Add(At(7), 3000 * kMs);
  curve.Add(At(9), 2900 * kMs);  // the last step, which was before the last look
  ASSERT_EQ(curve.points().size(), 2u);
  EXPECT_EQ(curve.points()[1].global_step, 9);
  EXPECT_DOUBLE_EQ(curve.points()[1].seconds, 2);
}

TEST(LearningCurveTest, ALongJobHasFewPointsFromItsFirstToItsLast) {
  for (const std::int64_t every_ms : {20, 250}) {
    LearningCurve curve;
    const int calls = 5003;
    for (int i = 0; i < calls; ++i) curve.Add(At(i), (1000 + i * every_ms) * kMs);
    const auto& points = curve.points();
    ASSERT_LE(points.size(), LearningCurve::kMostPoints + 1);
    EXPECT_GE(points.size(), LearningCurve::kMostPoints / 2);
    EXPECT_EQ(points.front().global_step, 0);
    EXPECT_EQ(points.back().global_step, calls - 1);
    double widest = 0;
    for (std::size_t i = 1; i < points.size(); ++i) {
      ASSERT_GT(points[i].global_step, points[i - 1].global_step);
      widest = std::max(widest, points[i].seconds - points[i - 1].seconds);
    }
    const double even = points.back().seconds / static_cast<double>(points.size() - 1);
    EXPECT_LE(widest, 2.5 * even) << every_ms;
  }
}

}  // namespace
}  // namespace passel::job::testing
