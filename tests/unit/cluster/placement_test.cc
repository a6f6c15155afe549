// Placement tables of the reference programs, and properties over random models.
// Numbers of parts: cluster_golden.py.

#include "cluster/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>

#include "base/random.h"

namespace passel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlacementVariable Variable(std::string name, std::vector<std::int64_t> shape) {
  return {std::move(name), std::move(shape), 4};
}

/// The MLP in the creation order of the first reference program: global_step (int32) comes first.
std::vector<PlacementVariable> MlpStepFirst() {
  return {Variable("global_step", {}), Variable("hid_w", {784, 100}), Variable("hid_b", {100}),
          Variable("sm_w", {100, 10}), Variable("sm_b", {10})};
}

/// The same with global_step last, as in the Kubernetes program.
std::vector<PlacementVariable> MlpStepLast() {
  return {Variable("hid_w", {784, 100}), Variable("hid_b", {100}), Variable("sm_w", {100, 10}),
          Variable("sm_b", {10}), Variable("global_step", {})};
}

std::vector<PlacementVariable> SoftmaxRegression() {
  return {Variable("global_step", {}), Variable("w", {784, 10}), Variable("b", {10})};
}

/// Names of the parts on each ps task, in creation order.
std::vector<std::vector<std::string>> Table(
    const std::vector<PlacementVariable>& variables, int ps_tasks,
    PlacementStrategy strategy = PlacementStrategy::kRoundRobin,
    const Partitioner& partitioner = Partitioner::None()) {
  const auto parts = PlaceVariables(variables, ps_tasks, strategy, partitioner);
  EXPECT_TRUE(parts.ok()) << parts.status().ToString();
  std::vector<std::vector<std::string>> table(static_cast<std::size_t>(ps_tasks));
  if (parts.ok()) {
    for (const VariablePart& part : *parts) {
      table.at(static_cast<std::size_t>(part.ps)).push_back(part.name);
    }
  }
  return table;
}

TEST(RoundRobinTest, CountsGlobalStepWhenItComesFirst) {
  EXPECT_THAT(Table(MlpStepFirst(), 1),
              ElementsAre(ElementsAre("global_step", "hid_w", "hid_b", "sm_w", "sm_b")));
  EXPECT_THAT(Table(MlpStepFirst(), 2), ElementsAre(ElementsAre("global_step", "hid_b", "sm_b"),
                                                    ElementsAre("hid_w", "sm_w")));
  EXPECT_THAT(Table(MlpStepFirst(), 3),
              ElementsAre(ElementsAre("global_step", "sm_w"), ElementsAre("hid_w", "sm_b"),
                          ElementsAre("hid_b")));
}

TEST(RoundRobinTest, CountsGlobalStepWhenItComesLast) {
  EXPECT_THAT(Table(MlpStepLast(), 2), ElementsAre(ElementsAre("hid_w", "sm_w", "global_step"),
                                                   ElementsAre("hid_b", "sm_b")));
  EXPECT_THAT(Table(MlpStepLast(), 3),
              ElementsAre(ElementsAre("hid_w", "sm_b"), ElementsAre("hid_b", "global_step"),
                          ElementsAre("sm_w")));
}

TEST(RoundRobinTest, PlacesSoftmaxRegressionInTurn) {
  EXPECT_THAT(Table(SoftmaxRegression(), 1), ElementsAre(ElementsAre("global_step", "w", "b")));
  EXPECT_THAT(Table(SoftmaxRegression(), 2),
              ElementsAre(ElementsAre("global_step", "b"), ElementsAre("w")));
  EXPECT_THAT(Table(SoftmaxRegression(), 5),
              ElementsAre(ElementsAre("global_step"), ElementsAre("w"), ElementsAre("b"),
                          ElementsAre(), ElementsAre()));
}

TEST(GreedyTest, PlacesTheMlpByBytes) {
  EXPECT_THAT(
      Table(MlpStepFirst(), 2, PlacementStrategy::kGreedyBytes),
      ElementsAre(ElementsAre("global_step", "hid_b", "sm_w", "sm_b"), ElementsAre("hid_w")));
}

TEST(GreedyTest, TakesTheLowestIndexOnTies) {
  std::vector<PlacementVariable> equal;
  for (int i = 0; i < 7; ++i) equal.push_back(Variable("v" + std::to_string(i), {3}));
  EXPECT_THAT(
      Table(equal, 3, PlacementStrategy::kGreedyBytes),
      ElementsAre(ElementsAre("v0", "v3", "v6"), ElementsAre("v1", "v4"), ElementsAre("v2", "v5")));
}

TEST(GreedyTest, CountsBytesNotElements) {
  std::vector<PlacementVariable> variables{Variable("a", {10}), Variable("b", {9}),
                                           Variable("c", {1}), Variable("d", {1})};
  variables[1].bytes_per_element = 8;  // a 40, b 72, c 4, d 4 bytes
  EXPECT_THAT(Table(variables, 2, PlacementStrategy::kGreedyBytes),
              ElementsAre(ElementsAre("a", "c", "d"), ElementsAre("b")));
}

TEST(PartitionerTest, FixedSizeMakesAtMostOnePartPerRow) {
  EXPECT_EQ(Partitioner::FixedSize(1).Parts(784, 400), 1);
  EXPECT_EQ(Partitioner::FixedSize(3).Parts(784, 400), 3);
  EXPECT_EQ(Partitioner::FixedSize(10).Parts(4, 400), 4);
  EXPECT_EQ(Partitioner::FixedSize(784).Parts(784, 400), 784);
}

TEST(PartitionerTest, MinMaxMakesAsManyPartsAsAreLargeEnough) {
  EXPECT_EQ(Partitioner::MinMax(8).Parts(784, 400), 2);
  EXPECT_EQ(Partitioner::MinMax(8, 100 << 10).Parts(784, 400), 4);
  EXPECT_EQ(Partitioner::MinMax(2, 100 << 10).Parts(784, 400), 2);
  EXPECT_EQ(Partitioner::MinMax(8, 1).Parts(4, 400), 4);
  EXPECT_EQ(Partitioner::MinMax(8).Parts(1024, 1024), 4);
  EXPECT_EQ(Partitioner::MinMax(8, 313600).Parts(784, 400), 1);
  EXPECT_EQ(Partitioner::MinMax(8, 313599).Parts(784, 400), 2);
}

TEST(PartitionerTest, VariableAxisSizeMakesPartsThatAreSmallEnough) {
  EXPECT_EQ(Partitioner::VariableAxisSize(100 << 10).Parts(784, 400), 4);
  EXPECT_EQ(Partitioner::VariableAxisSize(100 << 10, 2).Parts(784, 400), 2);
  EXPECT_EQ(Partitioner::VariableAxisSize(399).Parts(784, 400), 784);
  EXPECT_EQ(Partitioner::VariableAxisSize(400).Parts(784, 400), 784);
  EXPECT_EQ(Partitioner::VariableAxisSize(799).Parts(784, 400), 784);
  EXPECT_EQ(Partitioner::VariableAxisSize(800).Parts(785, 400), 393);
  EXPECT_EQ(Partitioner::VariableAxisSize(1 << 30).Parts(784, 400), 1);
  EXPECT_EQ(Partitioner::VariableAxisSize(1, 5).Parts(3, 400), 3);
}

TEST(PartitionerTest, TheFirstPartsHaveOneRowMoreAndEachIsPlacedOnItsOwn) {
  const auto parts =
      PlaceVariables(MlpStepFirst(), 2, PlacementStrategy::kRoundRobin, Partitioner::FixedSize(3));
  ASSERT_TRUE(parts.ok());
  // global_step is a scalar: whole. 784 = 262 + 261 + 261, 100 = 34 + 33 + 33, 10 = 4 + 3 + 3.
  const std::vector<VariablePart> expected{
      {0, 0, 1, 0, 1, 4, "global_step", 0},
      {1, 0, 3, 0, 262, 104800, "hid_w/part_0", 1},
      {1, 1, 3, 262, 261, 104400, "hid_w/part_1", 0},
      {1, 2, 3, 523, 261, 104400, "hid_w/part_2", 1},
      {2, 0, 3, 0, 34, 136, "hid_b/part_0", 0},
      {2, 1, 3, 34, 33, 132, "hid_b/part_1", 1},
      {2, 2, 3, 67, 33, 132, "hid_b/part_2", 0},
      {3, 0, 3, 0, 34, 1360, "sm_w/part_0", 1},
      {3, 1, 3, 34, 33, 1320, "sm_w/part_1", 0},
      {3, 2, 3, 67, 33, 1320, "sm_w/part_2", 1},
      {4, 0, 3, 0, 4, 16, "sm_b/part_0", 0},
      {4, 1, 3, 4, 3, 12, "sm_b/part_1", 1},
      {4, 2, 3, 7, 3, 12, "sm_b/part_2", 0},
  };
  ASSERT_EQ(parts->size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ((*parts)[i], expected[i]) << (*parts)[i].name;
  }
}

TEST(PlacementTest, WhatCannotBePlacedIsNamed) {
  const auto error = [](const std::vector<PlacementVariable>& variables, int ps_tasks = 2,
                        const Partitioner& partitioner = Partitioner::None()) {
    const auto parts =
        PlaceVariables(variables, ps_tasks, PlacementStrategy::kGreedyBytes, partitioner);
    EXPECT_EQ(parts.status().code(), Code::kInvalidArgument);
    return parts.status().message();
  };
  EXPECT_THAT(error(MlpStepFirst(), 0), HasSubstr("on 0 ps tasks"));
  EXPECT_THAT(error(MlpStepFirst(), -1), HasSubstr("on -1 ps tasks"));
  EXPECT_THAT(error({Variable("a", {2, 0})}), HasSubstr("dimension of 0"));
  EXPECT_THAT(error({Variable("a", {-2})}), HasSubstr("dimension of -2"));
  EXPECT_THAT(error({Variable("", {2})}), HasSubstr("no name"));
  EXPECT_THAT(error({Variable("a", {2}), Variable("a", {3})}), HasSubstr("named \"a\""));
  // A scalar keeps its name, which a part of "a" would have too.
  EXPECT_THAT(error({Variable("a/part_1", {}), Variable("a", {2})}, 2, Partitioner::FixedSize(2)),
              HasSubstr("named \"a/part_1\""));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(error({Variable("a", {most})}), HasSubstr("more than 9223372036854775807 bytes"));
  EXPECT_THAT(error({Variable("a", {most / 4}), Variable("b", {2})}), HasSubstr("together"));
  EXPECT_THAT(error({Variable("a", {2'000'000})}, 2, Partitioner::VariableAxisSize(4)),
              HasSubstr("2000000 parts"));
  PlacementVariable odd = Variable("a", {2});
  odd.bytes_per_element = 0;
  EXPECT_THAT(error({odd}), HasSubstr("0 bytes per element"));
  EXPECT_TRUE(PlaceVariables({}, 3, PlacementStrategy::kRoundRobin, Partitioner::None())->empty());
}

TEST(PlacementTest, RandomModelsAreCoveredOnceAndGreedyKeepsItsBound) {
  Random random(2021);
  for (int round = 0; round < 2000; ++round) {
    std::vector<PlacementVariable> variables;
    for (std::uint64_t n = random.Below(12); n > 0; --n) {
      PlacementVariable variable = Variable("v" + std::to_string(n), {});
      for (std::uint64_t rank = random.Below(4); rank > 0; --rank) {
        variable.shape.push_back(1 + static_cast<std::int64_t>(random.Below(40)));
      }
      variable.bytes_per_element = random.Below(2) == 0 ? 4 : 8;
      variables.push_back(std::move(variable));
    }
    const int ps_tasks = 1 + static_cast<int>(random.Below(5));
    const int n = 1 + static_cast<int>(random.Below(9));
    const auto bytes = 1 + static_cast<std::int64_t>(random.Below(2000));
    const Partitioner partitioners[] = {
        Partitioner::None(), Partitioner::FixedSize(n), Partitioner::MinMax(n, bytes),
        Partitioner::VariableAxisSize(bytes), Partitioner::VariableAxisSize(bytes, n)};
    const Partitioner& partitioner = partitioners[random.Below(5)];
    const bool greedy = random.Below(2) == 0;
    const auto placed = PlaceVariables(
        variables, ps_tasks,
        greedy ? PlacementStrategy::kGreedyBytes : PlacementStrategy::kRoundRobin, partitioner);
    ASSERT_TRUE(placed.ok()) << placed.status().ToString();

    std::size_t at = 0;
    std::vector<std::int64_t> loads(static_cast<std::size_t>(ps_tasks), 0);
    std::int64_t largest = 0;
    for (std::size_t v = 0; v < variables.size(); ++v) {
      const std::vector<std::int64_t>& shape = variables[v].shape;
      const std::int64_t rows = shape.empty() ? 1 : shape[0];
      const std::int64_t total =
          std::accumulate(shape.begin(), shape.end(), std::int64_t{variables[v].bytes_per_element},
                          std::multiplies<>());
      std::int64_t next_row = 0;
      std::int64_t sum = 0;
      std::int64_t most_rows = 0;
      std::int64_t fewest_rows = rows;
      int part = 0;
      for (; at < placed->size() && (*placed)[at].variable == static_cast<int>(v); ++at, ++part) {
        const VariablePart& p = (*placed)[at];
        EXPECT_EQ(p.part, part);
        EXPECT_EQ(p.first_row, next_row);
        EXPECT_LE(p.rows, part == 0 ? rows : (*placed)[at - 1].rows);  // larger ones first
        most_rows = std::max(most_rows, p.rows);
        fewest_rows = std::min(fewest_rows, p.rows);
        next_row += p.rows;
        sum += p.bytes;
        largest = std::max(largest, p.bytes);
        ASSERT_TRUE(p.ps >= 0 && p.ps < ps_tasks);
        if (!greedy) {
          EXPECT_EQ(p.ps, static_cast<int>(at % static_cast<std::size_t>(ps_tasks)));
        }
        loads[static_cast<std::size_t>(p.ps)] += p.bytes;
      }
      ASSERT_GE(part, 1);
      EXPECT_EQ((*placed)[at - 1].parts, part);
      EXPECT_EQ(next_row, rows) << "every row once";
      EXPECT_EQ(sum, total);
      EXPECT_GE(fewest_rows, 1);
      EXPECT_LE(most_rows - fewest_rows, 1);
    }
    EXPECT_EQ(at, placed->size());
    if (greedy) {
      // List scheduling: the fullest task was the emptiest before its last part came.
      const std::int64_t sum = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
      EXPECT_LE(*std::max_element(loads.begin(), loads.end()), sum / ps_tasks + largest);
    }
  }
}

}  // namespace
}  // namespace passel
