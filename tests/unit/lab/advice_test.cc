#include "lab/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace passel::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

MeasuredCell Measured(Sharing sharing, double share, double spread = 0.01, int writers = 4) {
  MeasuredCell measured;
  measured.cell.sharing = sharing;
  measured.cell.writers = writers;
  measured.result.share = share;
  measured.result.share_spread = spread;
  measured.result.latency.p50 = 21.04;
  return measured;
}

TEST(AdviceTest, TheFastestModeIsNamedWithItsShareAndItsGuarantee) {
  EXPECT_EQ(
      Advise({Measured(Mode::kHogwild, 0.80), Measured(Mode::kLocked, 0.93),
              Measured(Mode::kSsp, 0.60)},
             4),
      "On this machine with 4 workers, `locked` is fastest: 0.93 of the bare loops; it applies "
      "each gradient at once and loses nothing; `hogwild` (0.80) follows.");
}

TEST(AdviceTest, ADifferenceWithinTheNoiseIsNone) {
  const std::string close =
      Advise({Measured(Mode::kHogwild, 0.92), Measured(Mode::kLocked, 0.93)}, 4);
  EXPECT_THAT(close,
              HasSubstr("`locked` (0.93 of the bare loops) and `hogwild` (0.92) cannot be told"));
  EXPECT_THAT(close, HasSubstr("`hogwild` applies each gradient at once, and two that meet may"));
  EXPECT_THAT(Advise({Measured(Mode::kHogwild, 0.70, 0.7), Measured(Mode::kLocked, 0.93)}, 4),
              HasSubstr("cannot be told apart"));
  EXPECT_THAT(Advise({Measured(Mode::kHogwild, 0.20, 0.7), Measured(Mode::kLocked, 0.93)}, 4),
              Not(HasSubstr("cannot be told apart")));
}

TEST(AdviceTest, ARoundIsNoRivalOfWhatAppliesEachGradient) {
  EXPECT_EQ(
      Advise({Measured(Mode::kBarrier, 1.7), Measured(Mode::kLocked, 0.93),
              Measured(Mode::kReplicas, 1.6)},
             4),
      "On this machine with 4 workers, of the modes that apply each gradient only `locked` "
      "was measured: 0.93 of the bare loops; it applies each gradient at once and loses nothing; "
      "a round of `barrier`, which applies one mean gradient a round, the same bits whoever "
      "arrives first, takes 21 us.");
}

TEST(AdviceTest, FoilsAndOtherNumbersOfWritersAreLeftOut) {
  const std::vector<MeasuredCell> cells = {Measured(Foil::kNaive, 2.0),
                                           Measured(Mode::kLocked, 0.99, 0.01, 1)};
  EXPECT_EQ(Advise(cells, 4),
            "On this machine with 4 workers no mode was measured, so none can be advised.");
  EXPECT_THAT(Advise(cells, 1),
              HasSubstr("On this machine with 1 worker, of the modes that apply each"));
  EXPECT_THAT(Advise({Measured(Mode::kBarrier, 0.9)}, 4), HasSubstr("only rounds were measured"));
}

}  // namespace
}  // namespace passel::lab
