#include "lab/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace passel::lab {
namespace {

LabOptions Short() {
  LabOptions options;
  options.run_seconds = 0.002;
  options.pairs = 2;
  return options;
}

struct Kind {
  CellOp op;
  Sharing sharing;
};
constexpr Kind kKinds[] = {
    {CellOp::kPush, Mode::kHogwild},     {CellOp::kPush, Mode::kLocked},
    {CellOp::kPush, Mode::kSsp},         {CellOp::kPush, Foil::kNaive},
    {CellOp::kPush, Foil::kAtomic},      {CellOp::kPush, Foil::kMutex},
    {CellOp::kPushPull, Mode::kHogwild}, {CellOp::kPushPull, Mode::kLocked},
    {CellOp::kPushPull, Mode::kSsp},     {CellOp::kPushPull, Foil::kNaive},
    {CellOp::kPushPull, Foil::kAtomic},  {CellOp::kPushPull, Foil::kMutex},
    {CellOp::kRound, Mode::kBarrier},    {CellOp::kRound, Mode::kReplicas},
};

TEST(MeasureCell, EveryModeAndOptimizerGivesTheRightAnswerAndAllItsFigures) {
  for (const Kind& kind : kKinds) {
    for (const OptimizerKind optimizer : {OptimizerKind::kSgd, OptimizerKind::kAdam,
                                          OptimizerKind::kAdagrad, OptimizerKind::kFtrl}) {
      for (const int writers : {1, 2}) {
        Cell cell;
        cell.op = kind.op;
        cell.sharing = kind.sharing;
        cell.optimizer = optimizer;
        cell.elements = 5000;
        cell.writers = writers;
        cell.placement = Placement::kFree;
        const Result<CellResult> found = MeasureCell(cell, Short());
        ASSERT_TRUE(found.ok()) << CellName(cell) << ": " << found.status().message();
        EXPECT_GE(found->latency.samples, 2u * 5 * static_cast<unsigned>(writers));
        EXPECT_GT(found->latency.p50, 0) << CellName(cell);
        EXPECT_GT(found->limit.p50, 0) << CellName(cell);
        EXPECT_EQ(found->pairs.size(), 2u);
        EXPECT_GT(found->ratio, 0) << CellName(cell);
        EXPECT_GT(found->updates_per_second, 0);
        EXPECT_GE(found->pushes, static_cast<std::int64_t>(found->latency.samples));
        if (LosesNothing(cell)) {
          EXPECT_EQ(found->lost_updates, 0) << CellName(cell);
        }
      }
    }
  }
}

TEST(MeasureCell, ManyWritersOnOneCoreEndTogether) {
  for (const Kind& kind : {Kind{CellOp::kRound, Mode::kBarrier}, Kind{CellOp::kPush, Mode::kSsp},
                           Kind{CellOp::kPush, Foil::kMutex}}) {
    Cell cell;
    cell.op = kind.op;
    cell.sharing = kind.sharing;
    cell.elements = 100;
    cell.writers = 2;
    cell.placement = Placement::kOne;
    const Result<CellResult> found = MeasureCell(cell, Short());
    ASSERT_TRUE(found.ok()) << CellName(cell) << ": " << found.status().message();
  }
}

TEST(MeasureCell, AWriterThatStallsShowsInTheOpenLoopAndNotInTheClosedOne) {
  Cell cell;
  cell.optimizer = OptimizerKind::kSgd;
  cell.elements = 100;
  cell.placement = Placement::kFree;
  LabOptions options;
  options.run_seconds = 0.2;
  options.pairs = 1;
  // Once, for 100 ms of the 200: half of the operations of an open loop are late by that.
  options.before_operation = [](int, std::int64_t operation) {
    if (operation == 5) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  const Result<CellResult> closed = MeasureCell(cell, options);
  ASSERT_TRUE(closed.ok()) << closed.status().message();
  cell.rate_per_second = 1000;
  const Result<CellResult> open = MeasureCell(cell, options);
  ASSERT_TRUE(open.ok()) << open.status().message();
  EXPECT_GE(open->latency.samples, 150u);
  EXPECT_GT(open->latency.p99, 80'000);
  // One operation in two began while the writer slept, or after that and behind those.
  EXPECT_GT(open->latency.p90, 40'000);
  EXPECT_LT(closed->latency.p99, 20'000);
}

TEST(MeasureCell, AnOpenLoopThatCannotKeepItsRateSaysSo) {
  Cell cell;
  cell.elements = 100'000;
  cell.placement = Placement::kFree;
  cell.rate_per_second = 1e6;
  LabOptions options = Short();
  options.run_seconds = 0.01;
  const Result<CellResult> found = MeasureCell(cell, options);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_THAT(found->note, testing::HasSubstr("the rate was not kept"));
}

TEST(MeasureCell, AnOpenLoopOfFewOperationsKeepsItsRate) {
  Cell cell;
  cell.elements = 100;
  cell.placement = Placement::kFree;
  cell.rate_per_second = 10;  // the least number of operations takes longer than four runs
  LabOptions options = Short();
  options.run_seconds = 0.01;
  options.pairs = 1;
  const Result<CellResult> found = MeasureCell(cell, options);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->note, "");
  EXPECT_EQ(found->latency.samples, 5u);
}

TEST(MeasureCell, ARoundOfAnOpenLoopIsDueForAllWritersAtOnce) {
  Cell cell;
  cell.op = CellOp::kRound;
  cell.sharing = Mode::kBarrier;
  cell.elements = 100;
  cell.writers = 2;
  cell.placement = Placement::kFree;
  cell.rate_per_second = 4;
  LabOptions options = Short();
  options.pairs = 1;
  // In turn the first would wait 125 ms for the second each time, in every run. A machine that is
  // busy keeps a writer waiting so long in some.
  double least = 1e9;
  for (int run = 0; run < 8 && least >= 100'000; ++run) {
    const Result<CellResult> found = MeasureCell(cell, options);
    ASSERT_TRUE(found.ok()) << found.status().message();
    least = std::min(least, found->latency.p90);
  }
  EXPECT_LT(least, 100'000);
}

TEST(MeasureCell, RefusesWhatThisMachineHasNotGot) {
  Cell cell;
  cell.writers = 4096;
  EXPECT_EQ(MeasureCell(cell, Short()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace passel::lab
