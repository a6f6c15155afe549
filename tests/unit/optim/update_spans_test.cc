// The functions beside Apply(): sums, checks and copies of spans, and the choice of the table.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "optim/update_kernels.h"
#include "unit/optim/update_test_util.h"

namespace passel {
namespace {

TEST(SumGradients, AddsInOrderAndDividesOnceOnEveryTable) {
  for (const std::size_t n : kLengths) {
    for (int count = 1; count <= 9; ++count) {
      std::vector<std::vector<float>> gradients;
      std::vector<const float*> pointers;
      for (int k = 0; k < count; ++k) {
        // One float further than the last one: no two have the same alignment.
        gradients.push_back(VariedNumbers(100 * n + k, n + k));
        for (float& x : gradients.back()) {
          if (std::abs(x) < 1e-30F) x = 0;  // subnormal numbers have their own test
        }
        pointers.push_back(gradients.back().data() + k);
      }
      for (const float divisor : {1.0F, 2.0F, 3.0F, 7.0F, 8.0F, 0.7F}) {
        std::vector<float> expected(n);
        for (std::size_t i = 0; i < n; ++i) {
          float sum = pointers[0][i];
          for (int k = 1; k < count; ++k) sum += pointers[k][i];
          expected[i] = sum / divisor;
        }
        for (const RunnableTable& entry : RunnableUpdateTables()) {
          std::vector<float> out(n + 1, 99.0F);
          entry.table->sum(out.data(), pointers.data(), count, divisor, n);
          ASSERT_TRUE(SameBits(out.data(), expected.data(), n))
              << CpuIsaName(entry.isa) << ", n = " << n << ", " << count << " / " << divisor;
          ASSERT_EQ(out[n], 99.0F) << "wrote behind the end";
        }
      }
    }
  }
}

TEST(SumGradients, MayWriteOverOneOfTheGradients) {
  constexpr std::size_t kN = 1023;
  const std::vector<float> a = VariedNumbers(1, kN), b = VariedNumbers(2, kN),
                           c = VariedNumbers(3, kN);
  std::vector<float> expected(kN);
  const float* const apart[] = {a.data(), b.data(), c.data()};
  SumGradients(expected.data(), apart, 3, 3.0F, kN);
  for (int which = 0; which < 3; ++which) {
    std::vector<float> out(apart[which], apart[which] + kN);
    const float* pointers[] = {a.data(), b.data(), c.data()};
    pointers[which] = out.data();
    SumGradients(out.data(), pointers, 3, 3.0F, kN);
    EXPECT_TRUE(SameBits(out.data(), expected.data(), kN)) << "over gradient " << which;
  }
}

TEST(SumGradients, CountsSubnormalNumbersAsZeroOnEveryTable) {
  constexpr std::size_t kN = 67;
  const std::vector<float> tiny(kN, kSubnormal * 1000), zero(kN, 0.0F);
  const std::vector<float> normal(kN, std::numeric_limits<float>::min());
  for (const RunnableTable& entry : RunnableUpdateTables()) {
    std::vector<float> out(kN, 1.0F);
    const float* const gradients[] = {tiny.data(), tiny.data()};
    entry.table->sum(out.data(), gradients, 2, 3.0F, kN);
    EXPECT_TRUE(SameBits(out.data(), zero.data(), kN)) << CpuIsaName(entry.isa);
    const float* const smallest[] = {normal.data()};
    for (const float divisor : {2.0F, 3.0F}) {
      entry.table->sum(out.data(), smallest, 1, divisor, kN);
      EXPECT_TRUE(SameBits(out.data(), zero.data(), kN)) << CpuIsaName(entry.isa);
    }
  }
}

TEST(SumGradientsDeathTest, AMeanOfNothingIsABug) {
  float x = 0;
  const float* const gradients[] = {&x};
  EXPECT_DEATH(SumGradients(&x, gradients, 0, 1.0F, 1), "at least one gradient");
  EXPECT_DEATH(SumGradients(&x, gradients, 1, 0.0F, 1), "divisor above 0");
}

TEST(AllFinite, FindsOneBadElementAnywhere) {
  for (const RunnableTable& entry : RunnableUpdateTables()) {
    SCOPED_TRACE(CpuIsaName(entry.isa));
    std::vector<float> values = VariedNumbers(5, 200);
    values[1] = std::numeric_limits<float>::max();
    values[2] = std::numeric_limits<float>::lowest();
    for (const std::size_t n : {std::size_t{1}, std::size_t{16}, std::size_t{67}, values.size()}) {
      EXPECT_TRUE(entry.table->all_finite(values.data(), n));
      for (std::size_t i = 0; i < n; ++i) {
        for (const float bad :
             {kInf, -kInf, kNan, -kNan, std::numeric_limits<float>::signaling_NaN()}) {
          const float good = std::exchange(values[i], bad);
          EXPECT_FALSE(entry.table->all_finite(values.data(), n)) << bad << " at " << i;
          EXPECT_TRUE(entry.table->all_finite(values.data(), i)) << "looked behind the end";
          values[i] = good;
        }
      }
    }
    std::vector<float> large(100'003, 1.0F);
    EXPECT_TRUE(entry.table->all_finite(large.data(), large.size()));
    for (const std::size_t i : {0, 4095, 4096, 50'000, 100'002}) {
      large[i] = kNan;
      EXPECT_FALSE(entry.table->all_finite(large.data(), large.size())) << i;
      large[i] = 1;
    }
    EXPECT_TRUE(entry.table->all_finite(nullptr, 0));
  }
}

TEST(CopyValues, CopiesEveryBitAndNothingElse) {
  for (const std::size_t n : kLengths) {
    std::vector<float> values = VariedNumbers(n, n);
    if (n > 3) values[3] = kNan;
    std::vector<float> out(n + 1, 99.0F);
    CopyValues(out.data(), values.data(), n);
    EXPECT_TRUE(SameBits(out.data(), values.data(), n));
    EXPECT_EQ(out[n], 99.0F);
  }
  CopyValues(nullptr, nullptr, 0);
}

TEST(Tables, TheBaselineIsFirstAndNothingIsBeyondTheProcessor) {
  const auto tables = RunnableUpdateTables();
  ASSERT_FALSE(tables.empty());
  EXPECT_EQ(tables[0].isa, CpuIsa::kBaseline);
  EXPECT_EQ(tables[0].table, &update_table_baseline);
  for (std::size_t i = 1; i < tables.size(); ++i) {
    EXPECT_LT(tables[i - 1].isa, tables[i].isa);
    EXPECT_LE(tables[i].isa, BestCpuIsa());
  }
}

// Each runs in a process of its own, since the choice is made once.
class IsaDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  [[noreturn]] static void ReportWith(const char* wanted) {
    ::setenv("PASSEL_ISA", wanted, 1);
    float value = 0;
    const float gradient = 1;
    Apply(Prepare(OptimizerConfig(), 1), &value, nullptr, &gradient, 1);
    std::fprintf(stderr, "active=%s value=%g\n", std::string(ActiveIsa()).c_str(), value);
    std::exit(0);
  }
};

TEST_F(IsaDeathTest, TheEnvironmentForcesATable) {
  for (const RunnableTable& entry : RunnableUpdateTables()) {
    const std::string isa(CpuIsaName(entry.isa));
    EXPECT_EXIT(ReportWith(isa.c_str()), ::testing::ExitedWithCode(0),
                "^active=" + isa + " value=-0.001\n$");
  }
}

TEST_F(IsaDeathTest, AnUnknownNameIsReportedOnceAndTheBestTableIsTaken) {
  const std::string best(CpuIsaName(RunnableUpdateTables().back().isa));
  EXPECT_EXIT(ReportWith("sse9"), ::testing::ExitedWithCode(0),
              "PASSEL_ISA=sse9 .*\nactive=" + best + " value");
}

}  // namespace
}  // namespace passel
