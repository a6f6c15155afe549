#include "lab/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace passel::lab {
namespace {

// 1, 2, ..., n in some order: the q-quantile is ceil(q n).
std::vector<float> Ranks(int n) {
  std::vector<float> samples;
  for (int i = 1; i <= n; ++i) samples.push_back(static_cast<float>(i));
  std::shuffle(samples.begin(), samples.end(), std::mt19937(5));
  return samples;
}

TEST(Distribution, QuantilesAreTheSamplesOfTheirRank) {
  const Distribution found = Describe(Ranks(1000));
  EXPECT_EQ(found.samples, 1000u);
  EXPECT_EQ(found.p50, 500);
  EXPECT_EQ(found.p90, 900);
  EXPECT_EQ(found.p99, 990);
  EXPECT_EQ(found.p999, 999);
  EXPECT_EQ(found.maximum, 1000);
  EXPECT_EQ(MedianSample(Ranks(1000)), 500);
  EXPECT_EQ(MedianSample(Ranks(3)), 2);
  EXPECT_EQ(MedianSample({}), 0);
}

TEST(Distribution, OfFewSamplesTheHighQuantilesAreTheMaximum) {
  const Distribution found = Describe({3, 1, 2});
  EXPECT_EQ(found.p50, 2);
  EXPECT_EQ(found.p90, 3);
  EXPECT_EQ(found.p999, 3);
  EXPECT_EQ(found.maximum, 3);
}

TEST(Distribution, OfNoSamplesIsAllZero) {
  const Distribution found = Describe({});
  EXPECT_EQ(found.samples, 0u);
  EXPECT_EQ(found.p50, 0);
  EXPECT_EQ(found.maximum, 0);
  EXPECT_TRUE(found.curve.empty());
}

TEST(Distribution, OneSlowSampleOfThousandIsSeenByTheMaximumAlone) {
  std::vector<float> samples(1000, 1.0F);
  samples[123] = 50;
  const Distribution found = Describe(std::move(samples));
  EXPECT_EQ(found.p999, 1);
  EXPECT_EQ(found.maximum, 50);
}

TEST(Distribution, TheCurveRisesFromTheLeastToTheLargestSample) {
  const Distribution found = Describe(Ranks(1000));
  ASSERT_GE(found.curve.size(), 3u);
  EXPECT_EQ(found.curve.front(), std::make_pair(0.0, 1.0));
  EXPECT_EQ(found.curve.back(), std::make_pair(1.0, 1000.0));
  for (std::size_t i = 1; i < found.curve.size(); ++i) {
    EXPECT_GT(found.curve[i].first, found.curve[i - 1].first);
    EXPECT_GE(found.curve[i].second, found.curve[i - 1].second);
  }
  // 0.9, 0.99 and 0.999 are among its points; nothing beyond one sample in 1000 is.
  for (const double q : {0.9, 0.99, 0.999}) {
    const auto at = std::find_if(found.curve.begin(), found.curve.end(), [q](const auto& point) {
      return std::abs(point.first - q) < 1e-9;
    });
    ASSERT_NE(at, found.curve.end()) << q;
    EXPECT_EQ(at->second, 1000 * q);
  }
  EXPECT_LT(found.curve[found.curve.size() - 2].first, 0.9991);
}

}  // namespace
}  // namespace passel::lab
