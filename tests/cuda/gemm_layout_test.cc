// What cuBLASLt is told is checked against what it is documented to compute: a column-major product
// with a bias for each row of the result, a mask in its shape, sums of its rows or of the first
// operand's.

#include "cuda/gemm_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace passel::cuda {
namespace {

using ::testing::HasSubstr;

// cublasLtMatmul() with alpha 1 and beta 0, as documented.
void ColumnMajorMatmul(const GemmLayout& layout) {
  const auto element = [](const GemmLayout::Operand& operand, std::uint64_t row,
                          std::uint64_t col) {
    if (operand.transpose) std::swap(row, col);
    EXPECT_LT(row, operand.rows);
    EXPECT_LT(col, operand.cols);
    return operand.data[col * static_cast<std::uint64_t>(operand.ld) + row];
  };
  using Epilogue = LargeGemm::Epilogue;
  const bool writes_mask = layout.epilogue == Epilogue::kBiasReluMask;
  const bool sums_result = layout.epilogue == Epilogue::kMaskSums;
  const bool relu = writes_mask || layout.epilogue == Epilogue::kBiasRelu;
  std::vector<double> sums(layout.rows);
  for (std::uint64_t col = 0; col < layout.cols; ++col) {
    for (std::uint64_t row = 0; row < layout.rows; ++row) {
      double sum = layout.bias == nullptr ? 0 : layout.bias[row];
      for (std::uint64_t i = 0; i < layout.inner; ++i) {
        sum += double{element(layout.first, row, i)} * element(layout.second, i, col);
      }
      if (layout.mask != nullptr) {
        const std::uint64_t bit = col * static_cast<std::uint64_t>(layout.mask_ld) + row;
        std::byte& byte = layout.mask[bit / 8];
        const std::byte one = std::byte{1} << (bit % 8);
        if (!writes_mask) {
          if ((byte & one) == std::byte{0}) sum = 0;
        } else if (sum > 0) {
          byte |= one;
        } else {
          byte &= ~one;
        }
      }
      if (relu) sum = std::max(sum, 0.0);
      if (sums_result) sums[row] += sum;
      layout.result[col * static_cast<std::uint64_t>(layout.result_ld) + row] =
          static_cast<float>(sum);
    }
  }
  for (std::uint64_t row = 0; layout.sums != nullptr && row < layout.rows; ++row) {
    for (std::uint64_t i = 0; !sums_result && i < layout.inner; ++i) {
      sums[row] += double{element(layout.first, row, i)};
    }
    layout.sums[row] = static_cast<float>(sums[row]);
  }
}

void ExpectRowMajorProduct(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n,
                           std::size_t k, LargeGemm::Epilogue epilogue, std::size_t extra) {
  SCOPED_TRACE(::testing::Message()
               << m << " x " << n << " x " << k << ", transposed " << transpose_a << transpose_b
               << ", epilogue " << static_cast<int>(epilogue) << ", padding " << extra);
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto fill = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random);
    return values;
  };
  LargeGemm gemm;
  gemm.transpose_a = transpose_a;
  gemm.transpose_b = transpose_b;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.lda = (transpose_a ? m : k) + extra;
  gemm.ldb = (transpose_b ? k : n) + 2 * extra;
  gemm.ldc = n + 3 * extra;
  const std::vector<float> a = fill((transpose_a ? k : m) * gemm.lda);
  const std::vector<float> b = fill((transpose_b ? n : k) * gemm.ldb);
  const std::vector<float> bias = fill(n);
  std::vector<float> c(m * gemm.ldc, -77);
  gemm.a = a.data();
  gemm.b = b.data();
  gemm.c = c.data();
  gemm.bias = bias.data();
  gemm.epilogue = epilogue;
  gemm.ld_mask = 128 * (1 + extra);
  alignas(16) std::byte mask[8 * 256 / 8];
  for (std::byte& byte : mask) byte = static_cast<std::byte>(random());
  const std::vector<std::byte> mask_before(std::begin(mask), std::end(mask));
  std::vector<float> sums(n + 1, -77);
  gemm.mask = mask;
  gemm.sums = sums.data();
  const auto bit = [&](const auto& bytes, std::size_t i, std::size_t j) {
    const std::size_t number = i * gemm.ld_mask + j;
    return ((std::to_integer<unsigned>(bytes[number / 8]) >> (number % 8)) & 1u) != 0;
  };

  const Result<GemmLayout> layout = LayoutOf(gemm);
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  EXPECT_GE(layout->first.ld, static_cast<std::int64_t>(layout->first.rows));
  EXPECT_GE(layout->second.ld, static_cast<std::int64_t>(layout->second.rows));
  EXPECT_GE(layout->result_ld, static_cast<std::int64_t>(layout->rows));
  ColumnMajorMatmul(*layout);

  using Epilogue = LargeGemm::Epilogue;
  const auto b_at = [&](std::size_t x, std::size_t j) {
    return double{transpose_b ? b[j * gemm.ldb + x] : b[x * gemm.ldb + j]};
  };
  std::vector<double> expected_sums(n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < gemm.ldc; ++j) {
      double expected = -77;
      if (j < n) {
        expected = gemm.has_bias() ? double{bias[j]} : 0;
        for (std::size_t x = 0; x < k; ++x) {
          expected += double{transpose_a ? a[x * gemm.lda + i] : a[i * gemm.lda + x]} * b_at(x, j);
        }
        if (gemm.writes_mask()) {
          ASSERT_EQ(bit(mask, i, j), expected > 0) << i << ", " << j;
        }
        if (gemm.writes_mask() || epilogue == Epilogue::kBiasRelu) {
          expected = std::max(expected, 0.0);
        }
        if (gemm.reads_mask() && !bit(mask_before, i, j)) expected = 0;
        if (epilogue == Epilogue::kMaskSums) expected_sums[j] += expected;
      }
      ASSERT_NEAR(c[i * gemm.ldc + j], expected, 1e-6) << i << ", " << j;
    }
  }
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t x = 0; epilogue == Epilogue::kSums && x < k; ++x) {
      expected_sums[j] += b_at(x, j);
    }
    ASSERT_NEAR(sums[j], gemm.has_sums() ? expected_sums[j] : -77, 1e-5) << j;
  }
  ASSERT_EQ(sums[n], -77);
  if (!gemm.writes_mask()) {
    ASSERT_TRUE(std::equal(std::begin(mask), std::end(mask), mask_before.begin()));
  }
}

TEST(GemmLayout, ComputesTheRowMajorProduct) {
  for (const int transposed : {0, 1, 2, 3}) {
    for (const std::size_t m : {1, 3, 8}) {
      for (const std::size_t n : {1, 5, 7}) {
        for (const std::size_t k : {1, 2, 11}) {
          for (const LargeGemm::Epilogue epilogue :
               {LargeGemm::Epilogue::kNone, LargeGemm::Epilogue::kBias,
                LargeGemm::Epilogue::kBiasRelu, LargeGemm::Epilogue::kBiasReluMask,
                LargeGemm::Epilogue::kMask, LargeGemm::Epilogue::kMaskSums,
                LargeGemm::Epilogue::kSums}) {
            for (const std::size_t extra : {0, 1}) {
              ExpectRowMajorProduct((transposed & 1) != 0, (transposed & 2) != 0, m, n, k, epilogue,
                                    extra);
            }
          }
        }
      }
    }
  }
}

TEST(GemmLayout, RefusesWhatCannotBeComputed) {
  const float value = 1;
  float result = 0;
  LargeGemm good;
  good.m = good.n = good.k = good.lda = good.ldb = good.ldc = 2;
  good.a = good.b = &value;
  good.c = &result;
  ASSERT_TRUE(LayoutOf(good).ok());
  const auto expect = [&](auto change, const std::string& text) {
    LargeGemm gemm = good;
    change(gemm);
    const Status status = LayoutOf(gemm).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  expect([](LargeGemm& gemm) { gemm.k = 0; }, "2 x 2 x 0");
  expect([](LargeGemm& gemm) { gemm.lda = 1; }, "rows of a hold 2 floats, but lie 1 apart");
  expect([](LargeGemm& gemm) { gemm.ldb = 1; }, "rows of b");
  expect([](LargeGemm& gemm) { gemm.ldc = 1; }, "rows of c");
  expect([](LargeGemm& gemm) { gemm.m = std::size_t{1} << 31; }, "2147483648");
  using Epilogue = LargeGemm::Epilogue;
  expect([](LargeGemm& gemm) { gemm.epilogue = Epilogue::kBias; }, "bias");
  expect([](LargeGemm& gemm) { gemm.epilogue = Epilogue::kSums; }, "sums");
  expect([](LargeGemm& gemm) { gemm.epilogue = Epilogue::kMask; }, "mask needs its memory");
  alignas(16) std::byte mask[48];
  expect(
      [&](LargeGemm& gemm) {
        gemm.epilogue = Epilogue::kMask;
        gemm.mask = mask + 8;
        gemm.ld_mask = 128;
      },
      "16-byte aligned");
  for (const std::size_t ld : {0, 64, 192}) {
    expect(
        [&](LargeGemm& gemm) {
          gemm.epilogue = Epilogue::kMask;
          gemm.mask = mask;
          gemm.ld_mask = ld;
        },
        "a multiple of 128 is needed");
  }
  expect(
      [&](LargeGemm& gemm) {
        gemm.epilogue = Epilogue::kMask;
        gemm.mask = mask;
        gemm.n = gemm.ldb = gemm.ldc = 129;
        gemm.ld_mask = 128;
      },
      "hold 129 bits, but lie 128 apart");
}

}  // namespace
}  // namespace passel::cuda
