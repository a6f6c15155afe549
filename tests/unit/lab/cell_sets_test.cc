#include "lab/cell_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace passel::lab {
namespace {

std::set<std::string> Names(const std::vector<Cell>& cells) {
  std::set<std::string> names;
  for (const Cell& cell : cells) names.insert(CellName(cell));
  return names;
}

TEST(CellSets, HoldOnlyCellsThatMakeSenseAndEachOnce) {
  for (const int cores : {1, 2, 3, 4, 64}) {
    for (const auto& cells :
         {QuickCells(cores), FullCells(cores), AllCells(cores), SmokeCells(cores)}) {
      EXPECT_FALSE(cells.empty());
      EXPECT_EQ(Names(cells).size(), cells.size()) << cores;
      for (const Cell& cell : cells) {
        EXPECT_TRUE(CheckCell(cell, cores).ok()) << CheckCell(cell, cores).message();
      }
    }
  }
}

TEST(CellSets, AQuickRunIsShortAndAFullOneHasAllOfIt) {
  for (const int cores : {1, 2, 4, 64}) {
    const auto quick = Names(QuickCells(cores)), full = Names(FullCells(cores));
    EXPECT_LE(quick.size(), 40u);
    EXPECT_LE(full.size(), 160u);
    EXPECT_TRUE(std::includes(full.begin(), full.end(), quick.begin(), quick.end()));
  }
  EXPECT_GE(FullCells(4).size(), 100u);
}

TEST(CellSets, AFullRunAsksForEverything) {
  const std::vector<Cell> full = FullCells(4);
  const auto some = [&full](auto&& what) { return std::any_of(full.begin(), full.end(), what); };
  for (const Sharing sharing : kSharings) {
    for (const std::size_t elements : {16, 1000, 79510, 1'000'000, 16'000'000}) {
      EXPECT_TRUE(some([&](const Cell& cell) {
        return cell.sharing == sharing && cell.elements == elements && cell.pages == CellPages::k4k;
      })) << SharingName(sharing)
          << " " << elements;
    }
    for (const int writers : {2, 3, 4, 8}) {
      EXPECT_TRUE(some([&](const Cell& cell) {
        return cell.sharing == sharing && cell.writers == writers;
      })) << SharingName(sharing)
          << " " << writers;
    }
  }
  for (const OptimizerKind optimizer :
       {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdagrad, OptimizerKind::kFtrl}) {
    EXPECT_TRUE(some([&](const Cell& cell) { return cell.optimizer == optimizer; }));
  }
  for (const Placement placement : {Placement::kFree, Placement::kOwn, Placement::kOne}) {
    EXPECT_TRUE(some([&](const Cell& cell) { return cell.placement == placement; }));
  }
  EXPECT_TRUE(some([](const Cell& cell) { return cell.op == CellOp::kPushPull; }));
  EXPECT_TRUE(some([](const Cell& cell) { return cell.pages == CellPages::kHuge; }));
  EXPECT_TRUE(some([](const Cell& cell) { return cell.rate_per_second > 0; }));
  EXPECT_FALSE(some([](const Cell& cell) { return cell.elements > 16'000'000; }));
}

}  // namespace
}  // namespace passel::lab
