// Passes over the blocks of a shard: each block once, there and back, whatever the numbers.

#include "store/sweep_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace passel {
namespace {

std::vector<std::size_t> PassOf(SweepOrder& order) {
  std::vector<std::size_t> blocks;
  order.Pass([&](std::size_t begin, std::size_t end) {
    EXPECT_LT(begin, end);
    for (std::size_t b = begin; b < end; ++b) blocks.push_back(b);
  });
  return blocks;
}

TEST(SweepOrderTest, EveryPassVisitsEachBlockOnce) {
  for (const std::size_t blocks : {0u, 1u, 2u, 15u, 16u, 17u, 39u, 64u, 100u, 513u}) {
    std::vector<std::size_t> all;
    for (std::size_t b = 0; b < blocks; ++b) all.push_back(b);
    for (const int workers : {1, 2, 3, 64}) {
      for (int worker = 0; worker < workers; ++worker) {
        SweepOrder order(blocks, worker, workers);
        for (int pass = 0; pass < 3; ++pass) {
          std::vector<std::size_t> visited = PassOf(order);
          std::sort(visited.begin(), visited.end());
          EXPECT_EQ(visited, all) << blocks << " blocks, worker " << worker << " of " << workers;
        }
      }
    }
  }
}

TEST(SweepOrderTest, WorkersBeginApart) {
  SweepOrder first(64, 0, 2);
  SweepOrder second(64, 1, 2);
  EXPECT_EQ(PassOf(first).front(), 0u);
  EXPECT_EQ(PassOf(second).front(), 32u);
}

TEST(SweepOrderTest, WhatAPassVisitedLastComesFirstInTheNext) {
  constexpr std::size_t kBlocks = 200;
  SweepOrder order(kBlocks, 1, 3);
  std::vector<std::size_t> before = PassOf(order);
  for (int pass = 0; pass < 4; ++pass) {
    const std::vector<std::size_t> now = PassOf(order);
    const std::vector<std::size_t> last(before.end() - SweepOrder::kGroup, before.end());
    // A group more: groups are counted from the first block on, so the last one may be short.
    const std::vector<std::size_t> soon(now.begin(), now.begin() + 2 * SweepOrder::kGroup);
    EXPECT_THAT(soon, ::testing::IsSupersetOf(last)) << "pass " << pass;
    before = now;
  }
}

TEST(SweepOrderTest, BlocksAscendWithinAGroup) {
  SweepOrder order(32, 0, 1);
  PassOf(order);
  const std::vector<std::size_t> down = PassOf(order);
  EXPECT_EQ(down.front(), 16u);
  EXPECT_EQ(down[15], 31u);
  EXPECT_EQ(down[16], 0u);
  EXPECT_EQ(down.back(), 15u);
}

}  // namespace
}  // namespace passel
