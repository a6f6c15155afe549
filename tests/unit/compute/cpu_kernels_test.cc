#include "compute/cpu_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"
#include "support/reference_network.h"

namespace passel {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNotWritten = -12345.f;

// Sizes around the widths of the vectors: 4, 8 and 16 floats, unrolled or not.
constexpr std::size_t kWidths[] = {1, 3, 4, 10, 15, 16, 17, 31, 64, 100, 129};

std::vector<float> Normals(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(random.Normal());
  return values;
}

std::vector<std::uint32_t> Bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

// Two roundings: of 1 / 255, and of the product.
float Scaled(std::size_t pixel) { return static_cast<float>(pixel) * (1.f / 255); }

class CpuKernelsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (GetParam() > BestCpuIsa()) GTEST_SKIP() << "this processor does not run it";
    k_ = CpuKernelsFor(GetParam());
    if (k_ == nullptr) GTEST_SKIP() << "this build has no table for it (PASSEL_MARCH)";
  }
  const CpuKernels* k_ = nullptr;
  const CpuKernels& baseline_ = *CpuKernelsFor(CpuIsa::kBaseline);
};

INSTANTIATE_TEST_SUITE_P(AllSets, CpuKernelsTest,
                         testing::Values(CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512),
                         [](const auto& p) { return std::string(CpuIsaName(p.param)); });

TEST_P(CpuKernelsTest, GatherScalesEveryPixelExactly) {
  std::vector<std::uint8_t> rows(2 * 256);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<std::uint8_t>(i < 256 ? i : 7);
  const std::uint32_t index = 0;
  std::vector<float> out(256, kNotWritten);
  k_->gather(rows.data(), 256, &index, 1, out.data(), 256);
  for (std::size_t p = 0; p < 256; ++p) EXPECT_EQ(out[p], Scaled(p)) << p;
}

TEST_P(CpuKernelsTest, GatherTakesTheIndexedRowsAndLeavesThePaddingAlone) {
  for (const std::size_t width : kWidths) {
    const std::size_t ld = width + 5;
    std::vector<std::uint8_t> rows(50 * width);
    Random random(width);
    for (auto& v : rows) v = static_cast<std::uint8_t>(random.Below(256));
    const std::vector<std::uint32_t> indices = {49, 0, 7, 7, 13, 48, 1, 0, 22};
    // Every number of rows: a gather may take several at once.
    for (std::size_t count = 0; count <= indices.size(); ++count) {
      std::vector<float> out(indices.size() * ld, kNotWritten);
      k_->gather(rows.data(), width, indices.data(), count, out.data(), ld);
      for (std::size_t b = 0; b < indices.size(); ++b) {
        for (std::size_t i = 0; i < ld; ++i) {
          const bool written = b < count && i < width;
          const float expected = written ? Scaled(rows[indices[b] * width + i]) : kNotWritten;
          ASSERT_EQ(out[b * ld + i], expected)
              << "width " << width << ", " << count << " rows, row " << b << " at " << i;
        }
      }
    }
  }
}

TEST_P(CpuKernelsTest, BiasAndReluMatchScalarCodeBitForBit) {
  for (const std::size_t cols : kWidths) {
    const std::size_t rows = 5, ld = cols + 3;
    const std::vector<float> start = Normals(rows * ld, cols);
    const std::vector<float> bias = Normals(cols, cols + 1000);
    std::vector<float> linear = start, relu = start, linear_want = start, relu_want = start;
    for (std::size_t b = 0; b < rows; ++b) {
      for (std::size_t j = 0; j < cols; ++j) {
        const float v = start[b * ld + j] + bias[j];
        linear_want[b * ld + j] = v;
        relu_want[b * ld + j] = v > 0 ? v : 0;
      }
    }
    k_->bias(bias.data(), linear.data(), rows, cols, ld);
    k_->bias_relu(bias.data(), relu.data(), rows, cols, ld);
    EXPECT_EQ(Bits(linear), Bits(linear_want)) << cols;
    EXPECT_EQ(Bits(relu), Bits(relu_want)) << cols;
  }
}

TEST_P(CpuKernelsTest, ReluKeepsNanSoThatADivergedModelIsSeen) {
  std::vector<float> y(33, kNan);
  const std::vector<float> bias(33, 1.f);
  k_->bias_relu(bias.data(), y.data(), 1, 33, 33);
  for (const float v : y) EXPECT_TRUE(std::isnan(v));
}

TEST_P(CpuKernelsTest, ReluBackwardMasksAndSumsInRowOrder) {
  for (const std::size_t cols : kWidths) {
    const std::size_t rows = 37, ldh = cols + 2, ldd = cols + 7;
    std::vector<float> h = Normals(rows * ldh, cols), d = Normals(rows * ldd, cols + 1);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = i % 5 == 0 || h[i] < 0 ? 0.f : h[i];
    std::vector<float> want = d, sums(cols + 1, kNotWritten), sums_want(cols + 1, 0.f);
    sums_want[cols] = kNotWritten;
    for (std::size_t b = 0; b < rows; ++b) {
      for (std::size_t j = 0; j < cols; ++j) {
        if (h[b * ldh + j] == 0) want[b * ldd + j] = 0;
        sums_want[j] += want[b * ldd + j];
      }
    }
    k_->relu_backward(h.data(), ldh, d.data(), ldd, rows, cols, sums.data());
    EXPECT_EQ(d, want) << cols;
    EXPECT_EQ(sums, sums_want) << cols;
  }
}

TEST_P(CpuKernelsTest, ColumnSumsAddInRowOrderAndOverwrite) {
  for (const std::size_t cols : kWidths) {
    const std::size_t rows = 41, ld = cols + 1;
    const std::vector<float> d = Normals(rows * ld, cols);
    std::vector<float> sums(cols + 1, kNotWritten), want(cols + 1, 0.f);
    want[cols] = kNotWritten;
    for (std::size_t b = 0; b < rows; ++b) {
      for (std::size_t j = 0; j < cols; ++j) want[j] += d[b * ld + j];
    }
    k_->column_sums(d.data(), ld, rows, cols, sums.data());
    EXPECT_EQ(sums, want) << cols;
  }
}

// Distance of `got` from `exact`, in units of the last place of a float at `exact`.
double Ulps(float got, double exact) {
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 23);
}

TEST_P(CpuKernelsTest, ExpIsWithinOneUlpOverItsRange) {
  constexpr float kLowest = -87.33654f;
  // Every 61st float down to the end of the range, and few of those whose exponential is 1.
  constexpr float kRoundsToOne = -0x1p-26f;
  std::vector<float> x, y;
  const auto last = std::bit_cast<std::uint32_t>(kLowest);
  std::uint32_t bits = 0x80000000u;
  double worst = 0;
  float worst_at = 0;
  while (bits <= last) {
    x.clear();
    while (bits <= last && x.size() < 4096) {
      x.push_back(std::bit_cast<float>(bits));
      bits += x.back() > kRoundsToOne ? 4001 : 61;
    }
    y.resize(x.size());
    k_->exp_nonpositive(x.data(), y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = Ulps(y[i], std::exp(static_cast<double>(x[i])));
      if (error > worst) {
        worst = error;
        worst_at = x[i];
      }
    }
  }
  EXPECT_LE(worst, 1.0) << "at " << worst_at;
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST_P(CpuKernelsTest, ExpKeepsItsEdges) {
  const std::vector<float> x = {0.f, -0.f, -1e-30f, -87.33655f, -100.f, -1e30f, -kInf, kNan};
  const std::vector<float> want = {1, 1, 1, 0, 0, 0, 0};
  std::vector<float> y(x.size());
  k_->exp_nonpositive(x.data(), y.data(), x.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(y[i], want[i]) << x[i];
  EXPECT_TRUE(std::isnan(y.back()));
}

constexpr std::size_t kRows = 6, kClasses = 5;
constexpr float kLogits[kRows * kClasses] = {
    -0.65f, -1.95f, 1.98f, 1.7f,   -1.76f,  // nothing special
    30,     1,      2,     3,      -5,      // a true class that vanishes
    0.5f,   1.5f,   1.5f,  -1,     0,       // a tie for the largest
    1000,   -1000,  998,   0,      997,     // large
    0,      -50,    -50,   -23.0f, -50,     // p = e^-23.0 > 1e-10
    0,      -50,    -50,   -23.1f, -50,     // p = e^-23.1 < 1e-10
};
constexpr std::uint8_t kLabels[kRows] = {2, 4, 1, 0, 3, 3};

ReferenceExample Reference(std::size_t row, bool clip) {
  const float* logits = kLogits + row * kClasses;
  return ReferenceCrossEntropy({logits, logits + kClasses}, kLabels[row], clip);
}

// Float arithmetic on values up to 1: a few roundings of 2^-24.
constexpr double kTolerance = 3e-7;

TEST_P(CpuKernelsTest, SoftmaxMatchesDoublePrecision) {
  const std::size_t ld = 8;
  std::vector<float> y(kRows * ld, kNotWritten);
  for (std::size_t b = 0; b < kRows; ++b) {
    for (std::size_t j = 0; j < kClasses; ++j) y[b * ld + j] = kLogits[b * kClasses + j];
  }
  k_->softmax(y.data(), kRows, kClasses, ld);
  for (std::size_t b = 0; b < kRows; ++b) {
    const std::vector<double> want = Reference(b, true).probabilities;
    for (std::size_t j = 0; j < kClasses; ++j) {
      EXPECT_NEAR(y[b * ld + j], want[j], kTolerance) << b << ", " << j;
    }
    for (std::size_t j = kClasses; j < ld; ++j) EXPECT_EQ(y[b * ld + j], kNotWritten);
  }
}

TEST_P(CpuKernelsTest, CrossEntropyMatchesDoublePrecisionWithAndWithoutTheClip) {
  for (const bool clip : {true, false}) {
    for (const float scale : {1.f, 1.f / kRows}) {
      std::vector<float> y(std::begin(kLogits), std::end(kLogits));
      double loss = -1;
      std::size_t correct = 99;
      k_->cross_entropy(y.data(), kRows, kClasses, kClasses, kLabels, clip ? 1e-10f : 0.f, scale,
                        &loss, &correct);
      double wanted_loss = 0;
      for (std::size_t b = 0; b < kRows; ++b) {
        const ReferenceExample want = Reference(b, clip);
        wanted_loss += want.loss;
        for (std::size_t j = 0; j < kClasses; ++j) {
          EXPECT_NEAR(y[b * kClasses + j], want.gradient[j] * static_cast<double>(scale),
                      kTolerance)
              << b << ", " << j;
        }
      }
      // The float sum z of one row is off by a few 2^-24, relative.
      EXPECT_NEAR(loss, wanted_loss, 1e-5);
      EXPECT_EQ(correct, 3u);
    }
  }
}

TEST_P(CpuKernelsTest, BelowTheClipTheGradientIsExactlyZero) {
  std::vector<float> y(std::begin(kLogits), std::end(kLogits));
  double loss = 0;
  std::size_t correct = 0;
  k_->cross_entropy(y.data(), kRows, kClasses, kClasses, kLabels, 1e-10f, 1.f, &loss, &correct);
  for (std::size_t j = 0; j < kClasses; ++j) {
    EXPECT_EQ(y[1 * kClasses + j], 0.f);
    EXPECT_EQ(y[5 * kClasses + j], 0.f);
    EXPECT_NE(y[4 * kClasses + j], 0.f) << "just above the clip";
  }
}

TEST_P(CpuKernelsTest, OnlyTheFirstOfEqualMaximaIsAHit) {
  for (const std::uint8_t label : {0, 1, 2, 3}) {
    std::vector<float> y = {1, 2, 2, 0};
    double loss = 0;
    std::size_t correct = 9;
    k_->cross_entropy(y.data(), 1, 4, 4, &label, 1e-10f, 1.f, &loss, &correct);
    EXPECT_EQ(correct, label == 1 ? 1u : 0u) << int{label};
  }
}

TEST_P(CpuKernelsTest, ALogitThatIsNotFiniteGivesALossThatIsNotFinite) {
  for (const float bad : {kNan, kInf}) {
    for (std::size_t at = 0; at < 4; ++at) {
      for (const float clip : {0.f, 1e-10f}) {
        std::vector<float> y = {1, 2, 3, 4};
        y[at] = bad;
        const std::uint8_t label = 2;
        double loss = 0;
        std::size_t correct = 0;
        k_->cross_entropy(y.data(), 1, 4, 4, &label, clip, 1.f, &loss, &correct);
        EXPECT_FALSE(std::isfinite(loss)) << bad << " at " << at;
        EXPECT_TRUE(std::isnan(y[0])) << bad << " at " << at;
      }
    }
  }
}

TEST_P(CpuKernelsTest, TheLossOfManyExamplesWithManyClassesDoesNotOverflow) {
  const std::size_t rows = 1000, classes = 256;
  std::vector<float> y(rows * classes, 0.25f);  // z = 256 in every row
  const std::vector<std::uint8_t> labels(rows, 255);
  double loss = 0;
  std::size_t correct = 9;
  k_->cross_entropy(y.data(), rows, classes, classes, labels.data(), 1e-10f, 1.f, &loss, &correct);
  EXPECT_NEAR(loss, 1000 * std::log(256.0), 1e-9);
  EXPECT_EQ(correct, 0u);
}

TEST_P(CpuKernelsTest, EveryTableGivesTheBitsOfTheBaseline) {
  for (const std::size_t cols : kWidths) {
    const std::size_t rows = 70, n = rows * cols;
    std::vector<float> mine = Normals(n, cols), theirs = mine;
    for (std::size_t i = 0; i < n; i += 3) mine[i] = theirs[i] = mine[i] * 30;  // some p vanish
    std::vector<std::uint8_t> labels(rows);
    for (std::size_t b = 0; b < rows; ++b) labels[b] = static_cast<std::uint8_t>(b * 7 % cols);
    double loss = 0, loss_theirs = 1;
    std::size_t correct = 0, correct_theirs = 1;
    k_->cross_entropy(mine.data(), rows, cols, cols, labels.data(), 1e-10f, 0.01f, &loss, &correct);
    baseline_.cross_entropy(theirs.data(), rows, cols, cols, labels.data(), 1e-10f, 0.01f,
                            &loss_theirs, &correct_theirs);
    EXPECT_EQ(Bits(mine), Bits(theirs)) << cols;
    EXPECT_EQ(loss, loss_theirs) << cols;
    EXPECT_EQ(correct, correct_theirs) << cols;

    mine = theirs = Normals(n, cols + 1);
    k_->softmax(mine.data(), rows, cols, cols);
    baseline_.softmax(theirs.data(), rows, cols, cols);
    EXPECT_EQ(Bits(mine), Bits(theirs)) << cols;

    std::vector<float> x = Normals(n, cols + 2), y(n), y_theirs(n);
    for (float& v : x) v = -30 * std::abs(v);
    k_->exp_nonpositive(x.data(), y.data(), n);
    baseline_.exp_nonpositive(x.data(), y_theirs.data(), n);
    EXPECT_EQ(Bits(y), Bits(y_theirs)) << cols;
  }
}

}  // namespace
}  // namespace passel
