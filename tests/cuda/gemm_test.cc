// Products by our own kernels, run by the emulator, against double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/emulator.h"
#include "cuda/exact_buffer.h"
#include "cuda/gemm_choice.h"

namespace passel::cuda {
namespace {

enum class Tile { kSmall, kMedium, kLarge };

template <bool kUpdate>
AnyKernel KernelOf(Tile tile, const GemmArguments& arguments) {
  switch (tile) {
    case Tile::kSmall:
      return GemmKernel<SmallTile, kUpdate>{arguments};
    case Tile::kMedium:
      return GemmKernel<MediumTile, kUpdate>{arguments};
    case Tile::kLarge:
      break;
  }
  return GemmKernel<LargeTile, kUpdate>{arguments};
}
AnyKernel WithTile(Tile tile, const GemmArguments& arguments) {
  return KernelOf<false>(tile, arguments);
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

// Wherever it is: elements and columns are chosen by each bit of their number, so one that is
// counted never, twice or as another shows.
TEST_P(GemmTest, CountsWhatIsNotFinite) {
  Random random(31);
  for (const auto& size : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {1, 1}, {9, 17}, {33, 34}, {65, 67}, {64, 4}}) {
    const std::uint32_t m = size.first, n = size.second, k = std::max(m, 2u);
    ExactBuffer<float> a(m * k), b(k * n), c(m * n), sums(n);
    GemmArguments arguments{
        m,        n, k,          MakeOperand(a.data(), k, false), MakeOperand(b.data(), n, false),
        c.data(), n, sums.data()};
    std::uint32_t found = 0, found_in_sums = 0;
    arguments.nonfinite = &found;
    arguments.sums_nonfinite = &found_in_sums;
    const auto expect = [&](std::uint32_t wanted, std::uint32_t wanted_in_sums) {
      found = found_in_sums = 0;
      Emulate(WithTile(GetParam(), arguments), &random);
      EXPECT_EQ(found, wanted) << m << " x " << n;
      EXPECT_EQ(found_in_sums, wanted_in_sums) << m << " x " << n;
    };
    for (unsigned bit = 0; bit <= 13; ++bit) {
      for (const bool inverse : {false, true}) {
        const auto chosen = [&](std::uint32_t i) { return ((i >> bit & 1) != 0) != inverse; };
        // c is 1e30 b: infinite where b is large, of either sign. Sums of b are finite.
        std::fill(a.begin(), a.end(), 0.f);
        for (std::uint32_t i = 0; i < m; ++i) a[i * k + i] = 1e30f;
        std::fill(b.begin(), b.end(), 1.f);
        std::uint32_t elements = 0;
        for (std::uint32_t i = 0; i < m * n; ++i) {
          if (!chosen(i)) continue;
          b[i] = i % 3 == 0 ? -1e30f : 1e30f;
          ++elements;
        }
        expect(elements, 0);
        // c is 0: of the sums alone.
        std::fill(a.begin(), a.end(), 0.f);
        std::fill(b.begin(), b.end(), 1.f);
        std::uint32_t columns = 0;
        for (std::uint32_t j = 0; j < n; ++j) {
          if (!chosen(j)) continue;
          b[j] = b[n + j] = 3e38f;
          ++columns;
        }
        expect(0, columns);
        // And NaN goes to both.
        for (std::uint32_t j = 0; j < n; ++j) {
          if (chosen(j)) b[j] = kNan;
        }
        expect(m * columns, columns);
      }
    }
  }
}

AnyKernel UpdateWithTile(Tile tile, const GemmArguments& arguments) {
  return KernelOf<true>(tile, arguments);
}

// A product down a batch of k, as a layer's weights get their gradient: x' dy, and sums of dy.
struct WeightProduct {
  WeightProduct(std::uint32_t m, std::uint32_t n, std::uint32_t k, std::size_t shift,
                Random& random)
      : m_(m),
        n_(n),
        k_(k),
        x(std::size_t{k} * m),
        dy(std::size_t{k} * n),
        values(std::size_t{m} * n, shift),
        bias(n, shift) {
    for (auto* buffer : {&x, &dy, &values, &bias}) FillNormal(*buffer, random);
  }
  GemmArguments Arguments(float* c, float* sums) {
    GemmArguments a{m_, n_, k_,  MakeOperand(x.data(), m_, true), MakeOperand(dy.data(), n_, false),
                    c,  n_, sums};
    return a;
  }
  GemmArguments Update(const float* rate) {
    GemmArguments a = Arguments(values.data(), bias.data());
    a.nonfinite = &left_out[0];
    a.sums_nonfinite = &left_out[1];
    a.update = {rate, QuadsAllowed(values.data(), n_), QuadsAllowed(bias.data(), 0)};
    return a;
  }

  const std::uint32_t m_, n_, k_;
  ExactBuffer<float> x, dy, values, bias;
  std::uint32_t left_out[2] = {0, 0};  // of values, of bias
};

// Bit by bit what the plain product gives, pushed by one writer; and that is checked above.
TEST_P(GemmTest, UpdateAddsTheProductToTheValues) {
  Random random(21);
  const float rate = 0.37f;
  for (const std::uint32_t m : {0u, 1u, 7u, 8u, 33u, 64u, 65u, 130u}) {
    for (const std::uint32_t n : {1u, 3u, 4u, 10u, 16u, 63u, 100u}) {
      for (const std::uint32_t k : {1u, 5u, 129u}) {
        for (const std::size_t shift : {0u, 4u}) {
          SCOPED_TRACE(testing::Message()
                       << "m " << m << ", n " << n << ", k " << k << ", shift " << shift);
          WeightProduct p(m, n, k, shift, random);
          ExactBuffer<float> product(std::size_t{m} * n), sums(n);
          Emulate(WithTile(GetParam(), p.Arguments(product.data(), sums.data())), &random);
          std::vector<float> wanted(p.values.begin(), p.values.end());
          for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += -(rate * product[i]);
          std::vector<float> wanted_bias(p.bias.begin(), p.bias.end());
          for (std::size_t i = 0; i < n; ++i) wanted_bias[i] += -(rate * sums[i]);
          Emulate(UpdateWithTile(GetParam(), p.Update(&rate)), &random);
          ASSERT_EQ(std::vector<float>(p.values.begin(), p.values.end()), wanted);
          ASSERT_EQ(std::vector<float>(p.bias.begin(), p.bias.end()), wanted_bias);
          ASSERT_EQ(p.left_out[0], 0u);
          ASSERT_EQ(p.left_out[1], 0u);
          // Quickly, and once more: it adds, and does not overwrite.
          Emulate(UpdateWithTile(GetParam(), p.Update(&rate)), nullptr);
          for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += -(rate * product[i]);
          ASSERT_EQ(std::vector<float>(p.values.begin(), p.values.end()), wanted);
        }
      }
    }
  }
}

TEST_P(GemmTest, UpdateLeavesOutWhatIsNotFiniteAndCountsIt) {
  Random random(22);
  const float rate = 0.5f;
  for (const std::uint32_t n : {8u, 10u}) {  // quads, and not
    WeightProduct p(20, n, 6, 0, random);
    for (std::size_t b = 0; b < 6; ++b) p.x[b * 20 + 3] = 0.5f;
    p.dy[2 * n + 5] = std::numeric_limits<float>::infinity();  // column 5
    p.x[4 * 20 + 7] = kNan;                                    // row 7
    p.x[1 * 20 + 9] = std::numeric_limits<float>::max();       // row 9: product finite or not
    p.dy[1 * n + 2] = 100;                                     // (9, 2) overflows
    const std::vector<float> before(p.values.begin(), p.values.end());
    Emulate(UpdateWithTile(GetParam(), p.Update(&rate)), &random);
    std::uint32_t left_out = 0;
    for (std::size_t i = 0; i < 20; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        float sum = 0;
        for (std::size_t b = 0; b < 6; ++b) sum += p.x[b * 20 + i] * p.dy[b * n + j];
        const bool added = std::isfinite(sum);
        left_out += added ? 0 : 1;
        const float v = p.values[i * n + j];
        ASSERT_TRUE(std::isfinite(v)) << i << ", " << j;
        if (i != 9) {  // there some additions are too small to show
          EXPECT_EQ(v != before[i * n + j], added) << i << ", " << j;
        }
      }
    }
    EXPECT_TRUE(std::isfinite(p.values[9 * n + 2]));
    EXPECT_EQ(p.values[9 * n + 2], before[9 * n + 2]);
    EXPECT_GE(left_out, 19u + n);
    EXPECT_EQ(p.left_out[0], left_out);
    EXPECT_EQ(p.left_out[1], 1u) << "one column's sum";
    for (const float b : p.bias) EXPECT_TRUE(std::isfinite(b));
  }
}

// A gradient that is finite, and a rate that makes infinity of it.
TEST_P(GemmTest, UpdateLeavesOutWhatTheRateMakesInfinite) {
  Random random(23);
  const float rate = 1e30f;
  WeightProduct p(4, 4, 1, 0, random);
  for (float& v : p.x) v = 1e4f;
  for (float& v : p.dy) v = 1e5f;
  const std::vector<float> before(p.values.begin(), p.values.end());
  Emulate(UpdateWithTile(GetParam(), p.Update(&rate)), &random);
  EXPECT_EQ(std::vector<float>(p.values.begin(), p.values.end()), before);
  EXPECT_EQ(p.left_out[0], 16u);
  EXPECT_EQ(p.left_out[1], 0u) << "1e35 still is a float";
}

// The counting workload: every sum of ones is exact.
TEST_P(GemmTest, UpdatesAtTheSameTimeLoseNothing) {
  constexpr int kWriters = 4, kUpdates = 60;
  Random random(24);
  const float rate = 1;
  WeightProduct p(33, 20, 8, 0, random);
  for (float& v : p.x) v = 1;
  for (float& v : p.dy) v = -0.125f;
  for (auto* buffer : {&p.values, &p.bias}) std::fill(buffer->begin(), buffer->end(), 0.f);
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < kUpdates; ++i) {
        Emulate(UpdateWithTile(GetParam(), p.Update(&rate)), nullptr);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (const float v : p.values) ASSERT_EQ(v, kWriters * kUpdates);
  for (const float v : p.bias) ASSERT_EQ(v, kWriters * kUpdates);
}

TEST(GemmChoice, UpdatesGetTheTilesOfProducts) {
  const float rate = 1;
  for (const std::uint32_t m : {8u, 784u, 4096u}) {
    GemmArguments arguments{m, m == 8 ? 8u : m == 784 ? 100u : 512u, 100, {}, {}};
    const std::size_t product = ChooseGemm(arguments).index();
    arguments.update.rate = &rate;
    EXPECT_EQ(ChooseGemm(arguments).index(),
              product + AnyKernel(SmallGemmUpdate{}).index() - AnyKernel(SmallGemm{}).index());
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
