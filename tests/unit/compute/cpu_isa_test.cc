#include "base/cpu_isa.h"

#include <gtest/gtest.h>

namespace passel {
namespace {

TEST(CpuIsaTest, NoWishSelectsTheBestSet) {
  for (const CpuIsa best : {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const Result<CpuIsa> selected = SelectCpuIsa("", best);
    ASSERT_TRUE(selected.ok());
    EXPECT_EQ(*selected, best);
  }
}

TEST(CpuIsaTest, AWishUpToTheBestSetIsFollowed) {
  for (const CpuIsa wish : {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const Result<CpuIsa> selected = SelectCpuIsa(CpuIsaName(wish), CpuIsa::kAvx512);
    ASSERT_TRUE(selected.ok());
    EXPECT_EQ(*selected, wish);
  }
}

TEST(CpuIsaTest, AWishAboveTheBestSetIsAnErrorThatNamesBoth) {
  const Result<CpuIsa> selected = SelectCpuIsa("avx512", CpuIsa::kAvx2);
  ASSERT_FALSE(selected.ok());
  EXPECT_EQ(selected.status().code(), Code::kInvalidArgument);
  EXPECT_NE(selected.status().message().find("PASSEL_ISA=avx512"), std::string::npos);
  EXPECT_NE(selected.status().message().find("avx2"), std::string::npos);
}

TEST(CpuIsaTest, AnUnknownNameIsAnErrorThatListsTheNames) {
  const Result<CpuIsa> selected = SelectCpuIsa("AVX2", CpuIsa::kAvx512);
  ASSERT_FALSE(selected.ok());
  EXPECT_NE(selected.status().message().find("baseline, avx2 or avx512"), std::string::npos);
}

TEST(CpuIsaTest, TheChoiceOfThisProcessRunsOnThisProcessor) {
  EXPECT_LE(ChosenCpuIsa(), BestCpuIsa());
  EXPECT_EQ(ChosenCpuIsa(), ChosenCpuIsa());
}

}  // namespace
}  // namespace passel
