// Golden values: random_golden.py.

#include "base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace passel {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

/// Five standard deviations of a binomial count: fails once in two million correct generators,
/// and the seeds here are fixed.
double Tolerance(double n, double p) { return 5 * std::sqrt(n * p * (1 - p)); }

TEST(RandomTest, ASeedGivesTheKnownNumbers) {
  const std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> table{
      {0, {0x1a70a846bd9cc2a9, 0x6a0ef250cd2b9e80, 0x61325a7589c2ff27, 0x21ccf8536a2bb70a}},
      {1, {0xc5883e370b0926c3, 0x21b74b80f71f81c, 0x268df06749e5c8ce, 0xe052757d667afef2}},
      {42, {0x5c8961e1f2055d33, 0xe182e8e848466886, 0x9f7313650e290a18, 0xe6c0f551804ef0bb}},
      {kMax, {0x8defbd3346f3593a, 0x41a928faae78060c, 0xdde9bccaf1cd0233, 0x939e26ae8c3a89e7}}};
  for (const auto& [seed, numbers] : table) {
    Random random(seed);
    for (const std::uint64_t number : numbers) EXPECT_EQ(random.Next(), number) << seed;
  }
}

TEST(RandomTest, MixingAndStreamSeedsAreKnown) {
  static_assert(Mix64(0) == 0xe220a8397b1dcdaf);
  EXPECT_EQ(Mix64(1), 0x910a2dec89025cc1);
  EXPECT_EQ(Mix64(kMax), 0xe4d971771b652c20);
  EXPECT_EQ(StreamSeed(7, 3, 5), 0xf647de43e60ec467);
  EXPECT_EQ(StreamSeed(7, 3), 0x9c1b0b5b3e06cf11);
  EXPECT_NE(StreamSeed(7, 3, 5), StreamSeed(7, 5, 3));
}

TEST(RandomTest, ACopyGoesOnWithTheSameNumbers) {
  Random random(5);
  random.Next();
  Random copy = random;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(copy.Next(), random.Next());
}

TEST(RandomTest, BelowGivesTheKnownNumbers) {
  Random ten(42);
  for (const std::uint64_t wanted : {3, 8, 6, 9, 1, 5}) EXPECT_EQ(ten.Below(10), wanted);
  // About a quarter and about a half of all draws are rejected here.
  Random quarter(42);
  for (const std::uint64_t wanted :
       {5000976259766027750u, 12187354867386601060u, 12470669665984263308u, 2052967216510315611u,
        7013952439984263024u, 5239422876445985011u}) {
    EXPECT_EQ(quarter.Below(std::uint64_t{3} << 62), wanted);
  }
  Random half(42);
  for (const std::uint64_t wanted :
       {3333984173177351833u, 8124903244924400707u, 5744774199551231244u, 1368644811006877074u,
        1662945365835977960u, 2953181891145268638u}) {
    EXPECT_EQ(half.Below((std::uint64_t{1} << 63) + 1), wanted);
  }
}

TEST(RandomTest, BelowStaysBelow) {
  Random random(3);
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3},
                                std::uint64_t{1} << 32, (std::uint64_t{1} << 63) + 1, kMax}) {
    for (int i = 0; i < 1000; ++i) ASSERT_LT(random.Below(n), n);
  }
}

TEST(RandomTest, BelowIsUnbiasedForSmallAndForHugeRanges) {
  constexpr int kDraws = 300'000;
  Random random(11);
  for (const std::uint64_t n : {2u, 3u, 7u, 10u}) {
    std::vector<int> counts(n, 0);
    for (int i = 0; i < kDraws; ++i) ++counts[random.Below(n)];
    const double p = 1.0 / static_cast<double>(n);
    for (const int count : counts) EXPECT_NEAR(count, kDraws * p, Tolerance(kDraws, p)) << n;
  }
  // 3 * 2^62 values from 2^64 inputs: without rejection the multiples of 3 would come up twice as
  // often as the other residues (a half instead of a third).
  std::vector<int> residues(3, 0);
  for (int i = 0; i < kDraws; ++i) ++residues[random.Below(std::uint64_t{3} << 62) % 3];
  for (const int count : residues) {
    EXPECT_NEAR(count, kDraws / 3.0, Tolerance(kDraws, 1.0 / 3));
  }
}

TEST(RandomTest, UniformNumbersAreKnownAndFillTheUnitInterval) {
  Random known(42);
  for (const double wanted : {0.36147128835911724, 0.880903774938156, 0.6228496667592119}) {
    EXPECT_EQ(known.Uniform(), wanted);
  }
  constexpr int kDraws = 100'000;
  Random random(12);
  std::vector<int> tenths(10, 0);
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.Uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++tenths[static_cast<std::size_t>(u * 10)];
  }
  for (const int count : tenths) EXPECT_NEAR(count, kDraws / 10.0, Tolerance(kDraws, 0.1));
}

TEST(RandomTest, NormalNumbersAreKnownAndNormal) {
  Random known(42);
  for (const double wanted : {0.6941458560522373, 1.136879329173751, -0.5662461216418836}) {
    EXPECT_NEAR(known.Normal(), wanted, 1e-14);
  }
  constexpr int kDraws = 200'000;
  const double bounds[] = {0.5, 1, 2, 3};
  const double shares[] = {0.3829249225480262, 0.6826894921370859, 0.9544997361036416,
                           0.9973002039367398};
  Random random(13);
  std::vector<int> within(4, 0);
  int positive = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = random.Normal();
    ASSERT_TRUE(std::isfinite(z));
    positive += z > 0 ? 1 : 0;
    for (std::size_t b = 0; b < 4; ++b) within[b] += std::abs(z) <= bounds[b] ? 1 : 0;
  }
  EXPECT_NEAR(positive, kDraws / 2.0, Tolerance(kDraws, 0.5));
  for (std::size_t b = 0; b < 4; ++b) {
    EXPECT_NEAR(within[b], kDraws * shares[b], Tolerance(kDraws, shares[b])) << bounds[b];
  }
}

TEST(RandomTest, TruncatedNormalNumbersStayWithinTwoAndHaveTheRightSpread) {
  constexpr int kDraws = 200'000;
  Random random(14);
  double sum = 0;
  double squares = 0;
  double largest = 0;
  int within_one = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = random.TruncatedNormal();
    ASSERT_LE(std::abs(z), 2.0);
    largest = std::max(largest, std::abs(z));
    sum += z;
    squares += z * z;
    within_one += std::abs(z) <= 1 ? 1 : 0;
  }
  constexpr double kStd = 0.8796256610342398;
  EXPECT_NEAR(sum / kDraws, 0, 5 * kStd / std::sqrt(kDraws));
  EXPECT_NEAR(std::sqrt(squares / kDraws), kStd, 0.006);
  EXPECT_NEAR(within_one, kDraws * 0.7152327720109061, Tolerance(kDraws, 0.7152327720109061));
  EXPECT_GT(largest, 1.99);  // redrawn, not squeezed
}

}  // namespace
}  // namespace passel
