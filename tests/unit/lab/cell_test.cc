#include "lab/cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace passel::lab {
namespace {

using ::testing::HasSubstr;

TEST(CellName, SaysEverythingAndIsReadBack) {
  Cell cell;
  cell.writers = 2;
  EXPECT_EQ(CellName(cell),
            "BM_Cell/op:push/mode:hogwild/opt:adam/elems:79510/writers:2/place:own/pages:4k");
  for (const CellOp op : {CellOp::kPush, CellOp::kPushPull, CellOp::kRound}) {
    for (const Sharing sharing : kSharings) {
      for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam,
                                       OptimizerKind::kAdagrad, OptimizerKind::kFtrl}) {
        for (const Placement placement : {Placement::kFree, Placement::kOwn, Placement::kOne}) {
          for (const CellPages pages : {CellPages::k4k, CellPages::kHuge}) {
            for (const double rate : {0.0, 2000.0, 1.5}) {
              const Cell given{op, sharing, kind, 16'000'000, 8, placement, pages, rate};
              const Result<Cell> read = ParseCellName(CellName(given));
              ASSERT_TRUE(read.ok()) << CellName(given) << ": " << read.status().message();
              EXPECT_EQ(*read, given) << CellName(given);
            }
          }
        }
      }
    }
  }
}

TEST(CellName, OfAnotherFormIsRefusedWithWhatIsWrong) {
  const std::string good =
      "BM_Cell/op:push/mode:hogwild/opt:adam/elems:79510/writers:2/place:own/pages:4k";
  const auto refused = [](const std::string& name) {
    const Result<Cell> read = ParseCellName(name);
    EXPECT_FALSE(read.ok()) << name;
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
    return read.status().message();
  };
  EXPECT_THAT(refused("BM_Push/op:push"), HasSubstr("begins with BM_Cell/"));
  EXPECT_THAT(refused(""), HasSubstr("begins with BM_Cell/"));
  EXPECT_THAT(refused("BM_Cell/op:push"), HasSubstr("lacks mode:..."));
  EXPECT_THAT(refused("BM_Cell/mode:hogwild"), HasSubstr("must be op:..."));
  EXPECT_THAT(refused("BM_Cell/op:pull"), HasSubstr("one of push, push_pull, round"));
  EXPECT_THAT(refused(good + "/loop:open"), HasSubstr("lacks rate:..."));
  EXPECT_THAT(refused(good + "/loop:closed/rate:3"), HasSubstr("loop is open"));
  EXPECT_THAT(refused(good + "/loop:open/rate:fast"), HasSubstr("must be a number"));
  EXPECT_THAT(refused(good + "/loop:open/rate:0"), HasSubstr("rate is 0, but must be from 1 to"));
  EXPECT_THAT(refused(good + "/loop:open/rate:nan"), HasSubstr("but must be from 1 to 10000000"));
  EXPECT_THAT(refused("BM_Cell/op:push/mode:hogwild/opt:adam/elems:99999999999999999999"),
              HasSubstr("far too large"));
  EXPECT_THAT(refused(good + "/loop:open/rate:3/more:4"), HasSubstr("too much"));
  EXPECT_THAT(refused("BM_Cell/op:push/mode:hogwild/opt:adam/elems:-1"), HasSubstr("number"));
  EXPECT_THAT(refused("BM_Cell/op:push/mode:hogwild/opt:rmsprop"),
              HasSubstr("sgd, adam, adagrad, ftrl"));
}

TEST(CellCheck, RefusesWhatMakesNoSenseWithTheLimitAndTheValue) {
  const auto refusal = [](const Cell& cell, int cores) {
    const Status status = CheckCell(cell, cores);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << CellName(cell);
    return status.message();
  };
  Cell cell;
  EXPECT_TRUE(CheckCell(cell, 1).ok());
  cell.writers = 3;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("writers is 3, but must be from 1 to 2 on 2 usable"));
  cell.placement = Placement::kFree;
  EXPECT_TRUE(CheckCell(cell, 2).ok());
  cell.writers = 5;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("from 1 to 4"));
  cell.writers = 0;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("writers is 0"));
  cell = Cell();
  cell.elements = 0;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("elems is 0"));
  cell.elements = kMaxCellElements + 1;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("but must be from 1 to 1073741824"));
  cell = Cell();
  cell.op = CellOp::kRound;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("mode hogwild takes op:push or op:push_pull"));
  cell.sharing = Mode::kBarrier;
  EXPECT_TRUE(CheckCell(cell, 2).ok());
  cell.op = CellOp::kPush;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("mode barrier takes op:round"));
  cell = Cell();
  cell.rate_per_second = 2e7;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("from 1 to 10000000 a second"));
  cell.rate_per_second = 0.5;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("rate is 0.5, but must be from 1 to"));
  cell = Cell();
  cell.optimizer = OptimizerKind::kRmsProp;
  EXPECT_THAT(refusal(cell, 2), HasSubstr("not rmsprop"));
}

TEST(CellCheck, NamesTheMemoryThatIsNeededAndThatIsFree) {
  Cell cell;
  cell.elements = kMaxCellElements;  // 4 GiB each
  cell.writers = 200;
  const Status status = CheckCellMemory(cell);
  ASSERT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("needs "));
  EXPECT_THAT(status.message(), HasSubstr("MiB free"));
  EXPECT_THAT(status.message(), HasSubstr("BM_Cell/op:push"));
}

TEST(CellBytes, CountTheArenaAndWhatEachWriterHasForItself) {
  Cell cell;
  cell.elements = 1000;
  cell.writers = 3;
  cell.optimizer = OptimizerKind::kAdam;
  // Arena: values, two slots, three gradients; each writer: values, two slots, a gradient.
  EXPECT_EQ(CellBytes(cell), 4u * 1000 * (6 + 3 * 4));
  cell.optimizer = OptimizerKind::kSgd;
  cell.op = CellOp::kPushPull;
  // Arena: values, three gradients; each: values, a gradient, the pull's copy and the limit's.
  EXPECT_EQ(CellBytes(cell), 4u * 1000 * (4 + 3 * 4));
}

}  // namespace
}  // namespace passel::lab
