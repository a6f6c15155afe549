#include "data/keyed_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace passel {
namespace {

std::vector<std::uint64_t> All(std::uint64_t n, std::uint64_t key) {
  const KeyedOrder order(n, key);
  std::vector<std::uint64_t> all;
  for (std::uint64_t place = 0; place < n; ++place) all.push_back(order.At(place));
  return all;
}

TEST(KeyedOrderTest, EachThingIsAtOnePlace) {
  std::vector<std::uint64_t> sizes = {97, 1000, 4095, 4096, 4097, 60000};
  for (std::uint64_t n = 1; n < 70; ++n) sizes.push_back(n);
  for (const std::uint64_t n : sizes) {
    std::vector<std::uint64_t> all = All(n, 7);
    std::ranges::sort(all);
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(all[i], i) << n;
  }
  const KeyedOrder large(KeyedOrder::kMost, 7);
  EXPECT_LT(large.At(KeyedOrder::kMost - 1), KeyedOrder::kMost);
  EXPECT_NE(large.At(0), large.At(1));
}

TEST(KeyedOrderTest, AKeyAlwaysMeansTheSameOrder) {
  EXPECT_NE(All(10, 1), All(10, 2));
  EXPECT_THAT(All(10, 1), ::testing::ElementsAre(3, 6, 2, 5, 8, 1, 9, 7, 0, 4));
}

// Over many keys each thing is at each place equally often, and behind each other one.
TEST(KeyedOrderTest, OrdersAreUniform) {
  constexpr std::uint64_t kThings = 7;
  constexpr int kKeys = 42000;
  int at[kThings][kThings] = {}, behind[kThings][kThings] = {};
  for (int key = 0; key < kKeys; ++key) {
    const std::vector<std::uint64_t> all = All(kThings, static_cast<std::uint64_t>(key));
    for (std::size_t place = 0; place < kThings; ++place) ++at[place][all[place]];
    for (std::size_t place = 1; place < kThings; ++place) ++behind[all[place - 1]][all[place]];
  }
  for (std::uint64_t a = 0; a < kThings; ++a) {
    for (std::uint64_t b = 0; b < kThings; ++b) {
      EXPECT_NEAR(at[a][b], 6000, 500) << a << " " << b;  // seven standard deviations
      if (a != b) {
        EXPECT_NEAR(behind[a][b], 6000, 500) << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace passel
