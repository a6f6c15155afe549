// Products by our own kernels, run by the emulator, against double precision.

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/emulator.h"
#include "cuda/exact_buffer.h"
#include "cuda/gemm_choice.h"

namespace passel::cuda {
namespace {

enum class Tile { kSmall, kMedium, kLarge };

AnyKernel WithTile(Tile tile, const GemmArguments& arguments) {
  switch (tile) {
    case Tile::kSmall:
      return SmallGemm{arguments};
    case Tile::kMedium:
      return MediumGemm{arguments};
    case Tile::kLarge:
      break;
  }
  return LargeTileGemm{arguments};
}

struct Case {
  std::uint32_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  bool sums = false;
  std::size_t pad = 0;    // floats between rows
  std::size_t shift = 0;  // bytes off 64-byte alignment
};

// Runs one product and compares all that it wrote, and that it wrote nothing else.
void Check(Tile tile, const Case& t, std::uint64_t seed, bool orderly = false) {
  SCOPED_TRACE(testing::Message() << "tile " << static_cast<int>(tile) << ", m " << t.m << ", n "
                                  << t.n << ", k " << t.k << ", transposed " << t.transpose_a
                                  << t.transpose_b << ", epilogue " << static_cast<int>(t.epilogue)
                                  << ", sums " << t.sums << ", seed " << seed);
  Random random(seed);
  const std::size_t lda = (t.transpose_a ? t.m : t.k) + t.pad;
  const std::size_t ldb = (t.transpose_b ? t.k : t.n) + t.pad;
  const std::size_t ldc = t.n + t.pad, ld_mask = t.n + 2 * t.pad;
  // The last row has no padding behind it.
  const auto floats = [&](std::size_t rows, std::size_t cols, std::size_t ld) {
    return rows == 0 ? 0 : (rows - 1) * ld + cols;
  };
  ExactBuffer<float> a(t.transpose_a ? floats(t.k, t.m, lda) : floats(t.m, t.k, lda), t.shift);
  ExactBuffer<float> b(t.transpose_b ? floats(t.n, t.k, ldb) : floats(t.k, t.n, ldb), t.shift);
  ExactBuffer<float> c(floats(t.m, t.n, ldc), t.shift);
  ExactBuffer<float> sums(t.sums ? t.n : 0, t.shift);
  ExactBuffer<float> mask(floats(t.m, t.n, ld_mask), t.shift);
  ExactBuffer<float> bias(t.n, t.shift);
  FillNormal(a, random);
  FillNormal(b, random);
  FillNormal(mask, random);
  FillNormal(bias, random);
  const bool masked = t.epilogue == GemmEpilogue::kMask;
  const bool biased = t.epilogue == GemmEpilogue::kBias || t.epilogue == GemmEpilogue::kBiasRelu;

  const GemmArguments arguments{t.m,
                                t.n,
                                t.k,
                                MakeOperand(a.data(), lda, t.transpose_a),
                                MakeOperand(b.data(), ldb, t.transpose_b),
                                c.data(),
                                ldc,
                                t.sums ? sums.data() : nullptr,
                                masked   ? mask.data()
                                : biased ? bias.data()
                                         : nullptr,
                                ld_mask,
                                t.epilogue};
  Emulate(WithTile(tile, arguments), orderly ? nullptr : &random);

  std::vector<double> got, wanted;
  for (std::size_t i = 0; i < t.m; ++i) {
    for (std::size_t j = 0; j < t.n; ++j) {
      double sum = 0;
      for (std::size_t l = 0; l < t.k; ++l) {
        sum += static_cast<double>(t.transpose_a ? a[l * lda + i] : a[i * lda + l]) *
               static_cast<double>(t.transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
      }
      if (biased) sum += static_cast<double>(bias[j]);
      if (t.epilogue == GemmEpilogue::kBiasRelu && sum < 0) sum = 0;
      if (masked && mask[i * ld_mask + j] <= 0) sum = 0;
      wanted.push_back(sum);
      got.push_back(static_cast<double>(c[i * ldc + j]));
    }
  }
  ASSERT_LE(RelativeError(got, wanted), 1e-5);
  for (std::size_t i = 0; i + 1 < t.m; ++i) {
    for (std::size_t j = t.n; j < ldc; ++j) ASSERT_TRUE(std::isnan(c[i * ldc + j]));
  }
  if (!t.sums) return;
  got.clear();
  wanted.clear();
  for (std::size_t j = 0; j < t.n; ++j) {
    double sum = 0;
    for (std::size_t l = 0; l < t.k; ++l) {
      sum += static_cast<double>(t.transpose_b ? b[j * ldb + l] : b[l * ldb + j]);
    }
    wanted.push_back(sum);
    got.push_back(static_cast<double>(sums[j]));
  }
  ASSERT_LE(RelativeError(got, wanted), 1e-5);
}

class GemmTest : public testing::TestWithParam<Tile> {};

INSTANTIATE_TEST_SUITE_P(AllTiles, GemmTest,
                         testing::Values(Tile::kSmall, Tile::kMedium, Tile::kLarge),
                         [](const auto& p) {
                           return std::string(p.param == Tile::kSmall    ? "Small"
                                              : p.param == Tile::kMedium ? "Medium"
                                                                         : "Large");
                         });

TEST_P(GemmTest, EverySmallShapeIsRight) {
  std::uint64_t seed = 0;
  for (std::uint32_t m = 1; m <= 17; ++m) {
    for (std::uint32_t n = 1; n <= 17; ++n) {
      for (std::uint32_t k = 1; k <= 5; ++k) {
        // Transposes, epilogues and alignments take turns over the shapes.
        ++seed;
        Case t{m, n, k, (seed & 1) != 0, (seed & 2) != 0};
        t.epilogue = static_cast<GemmEpilogue>(seed / 4 % 4);
        t.sums = seed / 16 % 2 != 0;
        t.pad = seed % 3;
        t.shift = seed % 5 == 0 ? 4 : 0;
        Check(GetParam(), t, seed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(GemmTest, EveryKindIsRightAtSizesAroundTheTiles) {
  std::uint64_t seed = 1000;
  for (const auto& [m, n, k] :
       std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>>{{64, 64, 128},
                                                                            {65, 63, 129},
                                                                            {31, 33, 127},
                                                                            {100, 10, 100},
                                                                            {8, 16, 256},
                                                                            {97, 53, 31},
                                                                            {1, 1, 1021},
                                                                            {67, 1, 4096},
                                                                            {1, 67, 300}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const auto epilogue : {GemmEpilogue::kNone, GemmEpilogue::kBias,
                                    GemmEpilogue::kBiasRelu, GemmEpilogue::kMask}) {
          ++seed;
          Check(GetParam(), {m, n, k, ta, tb, epilogue, seed % 2 == 0, seed % 4, seed % 3 * 4},
                seed, seed % 4 == 0);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(GemmTest, TheProductsOfTheMnistModelAreRight) {
  Check(GetParam(), {100, 100, 784, false, false, GemmEpilogue::kBiasRelu}, 1);
  Check(GetParam(), {100, 10, 100, false, false, GemmEpilogue::kBias}, 2);
  Check(GetParam(), {100, 100, 10, false, true, GemmEpilogue::kMask}, 3);
  Check(GetParam(), {100, 10, 100, true, false, GemmEpilogue::kNone, true}, 4);
  Check(GetParam(), {784, 100, 100, true, false, GemmEpilogue::kNone, true}, 5);
}

TEST_P(GemmTest, EmptySidesWriteWhatIsThere) {
  Check(GetParam(), {0, 5, 3}, 1);
  Check(GetParam(), {5, 0, 3}, 2);
  Check(GetParam(), {0, 0, 0}, 3);
  Check(GetParam(), {0, 7, 3, true, false, GemmEpilogue::kNone, true}, 4);  // sums alone
  Check(GetParam(), {5, 7, 0, false, false, GemmEpilogue::kBias, true}, 5);
}

TEST_P(GemmTest, ReluAndMaskKeepNan) {
  float a = kNan, b = 1, bias = 0, mask = kNan, c = 0;
  GemmArguments arguments{1, 1, 1, MakeOperand(&a, 1, false), MakeOperand(&b, 1, false), &c, 1};
  arguments.epilogue = GemmEpilogue::kBiasRelu;
  arguments.epilogue_input = &bias;
  Emulate(WithTile(GetParam(), arguments), nullptr);
  EXPECT_TRUE(std::isnan(c));
  a = 3;
  arguments.epilogue = GemmEpilogue::kMask;
  arguments.epilogue_input = &mask;
  arguments.ld_mask = 1;
  Emulate(WithTile(GetParam(), arguments), nullptr);
  EXPECT_EQ(c, 3);
  mask = 0;
  Emulate(WithTile(GetParam(), arguments), nullptr);
  EXPECT_EQ(c, 0);
}

// Not a stray NaN of the neighbour may reach an element: 0 * NaN is NaN.
TEST_P(GemmTest, ANanStaysInItsRowAndColumn) {
  constexpr std::uint32_t kSize = 19;
  ExactBuffer<float> a(kSize * kSize), b(kSize * kSize), c(kSize * kSize);
  Random random(5);
  FillNormal(a, random);
  FillNormal(b, random);
  a[3 * kSize + 7] = kNan;
  const GemmArguments arguments{kSize,
                                kSize,
                                kSize,
                                MakeOperand(a.data(), kSize, false),
                                MakeOperand(b.data(), kSize, false),
                                c.data(),
                                kSize};
  Emulate(WithTile(GetParam(), arguments), &random);
  for (std::size_t i = 0; i < c.size(); ++i) EXPECT_EQ(std::isnan(c[i]), i / kSize == 3);
}

TEST_P(GemmTest, TheOrderOfThreadsDoesNotShow) {
  constexpr std::uint32_t kM = 45, kN = 37, kK = 300;
  ExactBuffer<float> a(kM * kK), b(kK * kN), c(kM * kN), sums(kN);
  Random random(9);
  FillNormal(a, random);
  FillNormal(b, random);
  GemmArguments arguments{
      kM,       kN, kK,         MakeOperand(a.data(), kK, false), MakeOperand(b.data(), kN, false),
      c.data(), kN, sums.data()};
  Emulate(WithTile(GetParam(), arguments), nullptr);
  std::vector<float> first(c.begin(), c.end());
  first.insert(first.end(), sums.begin(), sums.end());
  for (int i = 0; i < 5; ++i) {
    Emulate(WithTile(GetParam(), arguments), &random);
    for (std::size_t j = 0; j < first.size(); ++j) {
      const float now = j < c.size() ? c[j] : sums[j - c.size()];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(now), std::bit_cast<std::uint32_t>(first[j]));
    }
  }
}

TEST(GemmChoice, SmallOutputsGetSmallTiles) {
  const auto tile = [](std::uint32_t m, std::uint32_t n, std::uint32_t k) {
    return ChooseGemm(GemmArguments{m, n, k, {}, {}}).index();
  };
  const std::size_t small = AnyKernel(SmallGemm{}).index();
  const std::size_t medium = AnyKernel(MediumGemm{}).index();
  const std::size_t large = AnyKernel(LargeTileGemm{}).index();
  EXPECT_EQ(tile(100, 100, 784), small);
  EXPECT_EQ(tile(784, 100, 100), medium);
  EXPECT_EQ(tile(4096, 512, 512), large);
  EXPECT_FALSE(NeedsLibraryGemm(100, 784, 100));
  EXPECT_FALSE(NeedsLibraryGemm(512, 512, 512));
  EXPECT_TRUE(NeedsLibraryGemm(1024, 512, 512));
  EXPECT_TRUE(NeedsLibraryGemm(1, 1024, 1024));
}

}  // namespace
}  // namespace passel::cuda
