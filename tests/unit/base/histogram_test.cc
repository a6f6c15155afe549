// Histograms in shared memory: their buckets, and what is read off them.

#include "base/histogram.h"

#include <gtest/gtest.h>

#include <limits>

namespace passel {
namespace {

TEST(HistogramBuckets, EveryValueIsInABucketThatEndsAtOrAboveIt) {
  std::uint64_t step = 1;
  int last = -1;
  for (std::uint64_t value = 0;; value += step) {
    const int bucket = HistogramBucket(value);
    ASSERT_GE(bucket, last);
    ASSERT_LE(bucket, last + 1) << "a bucket was left out before " << value;
    ASSERT_LE(value, HistogramBucketTop(bucket));
    if (bucket > 0) {
      ASSERT_GT(value, HistogramBucketTop(bucket - 1));
    }
    last = bucket;
    step = value < 4096 ? 1 : value / 64;
    if (value > std::numeric_limits<std::uint64_t>::max() - step) break;
  }
  EXPECT_EQ(last, Histogram::kBuckets - 1);
}

TEST(HistogramBuckets, AreExactBelow128AndWithinAnEighthAbove) {
  for (std::uint64_t value = 0; value < 128; ++value) {
    EXPECT_EQ(HistogramBucketTop(HistogramBucket(value)), value);
  }
  for (int bucket = Histogram::kExact; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t top = HistogramBucketTop(bucket);
    const std::uint64_t bottom = HistogramBucketTop(bucket - 1) + 1;
    EXPECT_EQ(HistogramBucket(top), bucket);
    EXPECT_EQ(HistogramBucket(bottom), bucket);
    EXPECT_LE(top - bottom, bottom / 8);
  }
  EXPECT_EQ(HistogramBucketTop(Histogram::kBuckets - 1), std::numeric_limits<std::uint64_t>::max());
}

TEST(HistogramSummaries, QuantilesAreNearestRankOverAllHistograms) {
  // Values 1..100 in two histograms: nearest rank of q is ceil(100 q).
  Histogram odd{};
  Histogram even{};
  for (std::uint64_t v = 1; v <= 100; ++v) Record(v % 2 ? odd : even, v);
  const Histogram* both[] = {&odd, &even};
  const HistogramSummary summary = Summarize(both);
  EXPECT_EQ(summary.count, 100u);
  EXPECT_EQ(summary.p50, 50u);
  EXPECT_EQ(summary.p99, 99u);
  EXPECT_EQ(summary.p999, 100u);
  EXPECT_EQ(summary.maximum, 100u);
}

TEST(HistogramSummaries, EmptyAndSingleAndHugeValues) {
  Histogram h{};
  const Histogram* one[] = {&h};
  EXPECT_EQ(Summarize(one).count, 0u);
  EXPECT_EQ(Summarize(one).p999, 0u);
  EXPECT_EQ(Summarize({}).count, 0u);
  Record(h, 1'000'003);
  EXPECT_LE(Summarize(one).p50, 1'000'003u) << "never above the exact maximum";
  EXPECT_GE(Summarize(one).p50, 1'000'003 * 0.875);
  Record(h, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(Summarize(one).maximum, std::numeric_limits<std::uint64_t>::max());
  EXPECT_LE(Summarize(one).p50, 1'000'003 * 1.125);
  EXPECT_GE(Summarize(one).p50, 1'000'003 * 0.875);
}

TEST(HistogramSummaries, QuantilesLieBetweenTheEndsOfABucket) {
  Histogram h{};
  const Histogram* one[] = {&h};
  for (std::uint64_t v = 100'000; v < 200'000; ++v) Record(h, v);
  const HistogramSummary summary = Summarize(one);
  EXPECT_NEAR(static_cast<double>(summary.p50), 150'000, 1'500);
  EXPECT_NEAR(static_cast<double>(summary.p99), 199'000, 4'000);
}

TEST(HistogramBuckets, HoldEveryValueOnce) {
  Histogram h{};
  const Histogram* one[] = {&h};
  EXPECT_TRUE(Buckets(one).empty());
  for (const std::uint64_t v : {0u, 7u, 7u, 127u, 128u, 5'000'000u}) Record(h, v);
  std::uint64_t count = 0, last = 0;
  for (const BucketCount& bucket : Buckets(one)) {
    EXPECT_TRUE(count == 0 || bucket.least > last);
    EXPECT_EQ(HistogramBucket(bucket.least), HistogramBucket(bucket.most));
    EXPECT_NE(HistogramBucket(bucket.most), HistogramBucket(bucket.most + 1));
    last = bucket.most;
    count += bucket.count;
  }
  EXPECT_EQ(count, 6u);
  EXPECT_GE(last, 5'000'000u);
}

}  // namespace
}  // namespace passel
