#include "cluster/patience.h"

#include <gtest/gtest.h>

namespace passel {
namespace {

using std::chrono::milliseconds;

TEST(PatienceTest, EndsAtItsDeadlineHoweverLongThePauses) {
  const std::int64_t begin = MonotonicNs();
  Patience patience(Deadline::After(milliseconds(50)));
  EXPECT_TRUE(patience.Again(milliseconds(1)));
  EXPECT_TRUE(patience.Again(std::chrono::hours(1))) << "the last attempt is made at the deadline";
  EXPECT_FALSE(patience.Again());
  EXPECT_GE(MonotonicNs() - begin, std::chrono::nanoseconds(milliseconds(50)).count());
}

TEST(PatienceTest, TellsNothingInTheFirstSeconds) {
  bool told = false;
  Patience patience(Deadline::After(milliseconds(10)), [&] { told = true; });
  while (patience.Again(milliseconds(1))) continue;
  EXPECT_FALSE(told);
}

TEST(PatienceTest, OnlyWhatAnotherAttemptCanMendIsMissing) {
  for (const Code code : {Code::kNotFound, Code::kUnavailable, Code::kDeadlineExceeded}) {
    EXPECT_TRUE(IsMissing(code)) << CodeName(code);
  }
  for (const Code code : {Code::kOk, Code::kPermissionDenied, Code::kFailedPrecondition,
                          Code::kAlreadyExists, Code::kDataLoss, Code::kCancelled}) {
    EXPECT_FALSE(IsMissing(code)) << CodeName(code);
  }
}

}  // namespace
}  // namespace passel
