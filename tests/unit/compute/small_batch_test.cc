// Products of a small batch on passel's own kernels.

#include "compute/small_batch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/cpu_backend.h"
#include "compute/cpu_kernels.h"

namespace passel {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kGuard = -12345.f;

// `count` floats whose end is the end of a page, and nothing may be touched behind it.
class Fenced {
 public:
  explicit Fenced(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (count * sizeof(float) + page - 1) / page * page;
    bytes_ = bytes + page;
    memory_ = static_cast<char*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED || ::mprotect(memory_ + bytes, page, PROT_NONE) != 0) std::abort();
    data_ = reinterpret_cast<float*>(memory_ + bytes) - count;
  }
  ~Fenced() { ::munmap(memory_, bytes_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  float* data() { return data_; }
  std::size_t size() const { return count_; }
  float& operator[](std::size_t i) { return data_[i]; }
  void Normals(std::uint64_t seed) {
    Random random(seed);
    for (std::size_t i = 0; i < count_; ++i) data_[i] = static_cast<float>(random.Normal());
  }

 private:
  std::size_t count_, bytes_ = 0;
  char* memory_ = nullptr;
  float* data_ = nullptr;
};

// One product with its operands, whose leading dimensions are `more` above their widths. The last
// row of each ends with its last element.
struct Case {
  Case(bool gradient, std::size_t m, std::size_t n, std::size_t k, std::size_t more = 0)
      : lda((gradient ? m : k) + more),
        ldb(n + 2 * more),
        ldc(n + 3 * more),
        a((gradient ? k - 1 : m - 1) * lda + (gradient ? m : k)),
        b((k - 1) * ldb + n),
        c((m - 1) * ldc + n),
        product{gradient, false, m, n, k, a.data(), lda, b.data(), ldb, 0, c.data(), ldc} {
    a.Normals(m * 7 + k);
    b.Normals(n * 11 + k);
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = kGuard;
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) c[i * ldc + j] = kNotANumber;
    }
  }
  float& A(std::size_t i, std::size_t p) {
    return product.transpose_a ? a[p * lda + i] : a[i * lda + p];
  }
  // The sum in double precision, and that of the terms' sizes.
  double Sum(std::size_t i, std::size_t j, double* size = nullptr) {
    double sum = 0, all = 0;
    for (std::size_t p = 0; p < product.k; ++p) {
      const double term = static_cast<double>(A(i, p)) * static_cast<double>(b[p * ldb + j]);
      sum += term;
      all += std::abs(term);
    }
    if (size != nullptr) *size = all;
    return sum;
  }
  std::string Name() const {
    return std::string(product.transpose_a ? "gradient " : "forward ") + std::to_string(product.m) +
           "x" + std::to_string(product.n) + "x" + std::to_string(product.k);
  }

  std::size_t lda, ldb, ldc;
  Fenced a, b, c;
  Product product;
};

class SmallBatchTest : public testing::Test {
 protected:
  void SetUp() override {
    if (BestCpuIsa() < CpuIsa::kAvx2) GTEST_SKIP() << "this processor has no AVX2";
    table_ = CpuKernelsFor(CpuIsa::kAvx2);
    if (table_ == nullptr) GTEST_SKIP() << "this build has no table for AVX2 (PASSEL_MARCH)";
  }
  void Run(const Case& one) {
    ASSERT_NE(SmallBatchOf(one.product), SmallBatch::kNo) << one.Name();
    const auto kernel =
        one.product.transpose_a ? table_->small_batch_gradient : table_->small_batch_forward;
    kernel(one.product, scratch_.get());
  }
  void ExpectRight(Case& one) {
    ASSERT_NO_FATAL_FAILURE(Run(one));
    const Product& p = one.product;
    for (std::size_t i = 0; i < p.m; ++i) {
      for (std::size_t j = 0; j < p.n; ++j) {
        double size = 0;
        const double want = one.Sum(i, j, &size);
        const double bound = size * 4 * std::sqrt(static_cast<double>(p.k) + 1.0) * 0x1p-24;
        ASSERT_NEAR(one.c[i * one.ldc + j], want, bound) << one.Name() << " at " << i << ", " << j;
      }
      const std::size_t end = i + 1 < p.m ? one.ldc : p.n;
      for (std::size_t j = p.n; j < end; ++j) ASSERT_EQ(one.c[i * one.ldc + j], kGuard);
    }
  }
  const CpuKernels* table_ = nullptr;
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  // Dirty: nothing is to be expected of it.
  const std::unique_ptr<float[], Free> scratch_{[] {
    auto* const memory =
        static_cast<float*>(std::aligned_alloc(64, kSmallBatchScratch * sizeof(float)));
    for (std::size_t i = 0; i < kSmallBatchScratch; ++i) memory[i] = kNotANumber;
    return memory;
  }()};
};

TEST_F(SmallBatchTest, ForwardMatchesDoublePrecisionForEveryNumberOfRows) {
  for (const std::size_t m : {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 99, 100, 101, 127, 128}) {
    Case one(false, m, 29, 33, m % 3);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
}

TEST_F(SmallBatchTest, ForwardMatchesDoublePrecisionForEveryWidth) {
  for (std::size_t n = 16; n <= 80; ++n) {
    Case one(false, 18, n, 27, n % 4);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
  for (const std::size_t n : {100, 101, 127, 128, 255, 256}) {
    Case one(false, 19, n, 40, n % 2);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
}

TEST_F(SmallBatchTest, ForwardMatchesDoublePrecisionForEveryDepthInOneBlockAndInSeveral) {
  for (std::size_t k = 16; k <= 48; ++k) {
    Case one(false, 17, 31, k, k % 3);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
  for (const std::size_t k : {223, 224, 225, 239, 449, 673, 784, 787}) {
    Case one(false, 21, 53, k, k % 2);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
}

TEST_F(SmallBatchTest, GradientMatchesDoublePrecisionForEveryRemainder) {
  for (std::size_t m = 512; m < 512 + 24; ++m) {
    Case one(true, m, 16 + m % 5, 17, m % 3);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
  for (std::size_t n = 16; n <= 33; ++n) {
    Case one(true, 512 + n % 24, n, 18, n % 4);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
  for (const std::size_t n : {100, 101, 127, 128, 255, 256}) {
    Case one(true, 519, n, 19, n % 2);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
  for (const std::size_t k : {16, 17, 18, 19, 20, 99, 100, 127, 128}) {
    Case one(true, 516, 21, k, k % 3);
    ASSERT_NO_FATAL_FAILURE(ExpectRight(one));
  }
  Case largest(true, 512, 256, 128);
  ASSERT_NO_FATAL_FAILURE(ExpectRight(largest));
}

TEST_F(SmallBatchTest, TheDefaultModelMatchesDoublePrecision) {
  Case forward(false, 100, 100, 784), gradient(true, 784, 100, 100);
  ASSERT_NO_FATAL_FAILURE(ExpectRight(forward));
  ASSERT_NO_FATAL_FAILURE(ExpectRight(gradient));
}

TEST_F(SmallBatchTest, WhatIsNotFiniteComesOutWherePlainSumsHaveIt) {
  for (const bool gradient : {false, true}) {
    const std::size_t m = gradient ? 515 : 23, n = 31, k = gradient ? 21 : 237;
    for (const std::size_t p : {std::size_t{0}, k / 2, k - 1}) {
      Case one(gradient, m, n, k, 1);
      one.A(0, p) = kInfinite;
      one.A(m - 1, p) = kNotANumber;
      one.A(2, k - 1) = -kInfinite;
      one.A(3, 1) = 0;
      one.b[1 * one.ldb + 5] = kInfinite;  // times 0: NaN
      one.b[p * one.ldb + n - 1] = -kInfinite;
      one.b[p * one.ldb + 24] = kNotANumber;
      ASSERT_NO_FATAL_FAILURE(Run(one));
      for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          const double want = one.Sum(i, j);
          const float got = one.c[i * one.ldc + j];
          ASSERT_EQ(std::isnan(got), std::isnan(want)) << one.Name() << " " << i << ", " << j;
          ASSERT_EQ(std::isinf(got), std::isinf(want)) << one.Name() << " " << i << ", " << j;
          if (std::isinf(want)) {
            ASSERT_EQ(got > 0, want > 0) << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_F(SmallBatchTest, ARowHasTheSameBitsAmongMoreRowsAndAfterAnotherRun) {
  Case all(false, 128, 103, 501);
  ASSERT_NO_FATAL_FAILURE(Run(all));
  for (const std::size_t m : {16, 17, 18, 19, 100, 127, 128}) {
    Case some(false, m, 103, 501);
    std::memcpy(some.a.data(), all.a.data(), some.a.size() * sizeof(float));
    ASSERT_NO_FATAL_FAILURE(Run(some));
    ASSERT_EQ(std::memcmp(some.c.data(), all.c.data(), m * some.ldc * sizeof(float)), 0) << m;
  }
}

Product Shaped(bool transpose_a, std::size_t m, std::size_t n, std::size_t k) {
  Product p;
  p.transpose_a = transpose_a;
  p.m = m, p.n = n, p.k = k;
  return p;
}

TEST(SmallBatchGateTest, LetsThroughWhatWasMeasured) {
  for (const std::size_t batch : {16, 100, 128}) {
    for (const std::size_t n : {16, 100, 256}) {
      for (const std::size_t inputs : {16, 511, 512, 784}) {
        EXPECT_EQ(SmallBatchOf(Shaped(false, batch, n, inputs)), SmallBatch::kForward);
        EXPECT_EQ(SmallBatchOf(Shaped(true, inputs, n, batch)),
                  inputs < 512 ? SmallBatch::kNo : SmallBatch::kGradient);
      }
    }
  }
}

TEST(SmallBatchGateTest, LeavesTheRestToOpenBlas) {
  for (const bool gradient : {false, true}) {
    const auto shape = [&](std::size_t batch, std::size_t n, std::size_t inputs) {
      return gradient ? Shaped(true, inputs, n, batch) : Shaped(false, batch, n, inputs);
    };
    for (const Product& p :
         {shape(15, 100, 784), shape(129, 100, 784), shape(0, 100, 784), shape(100, 15, 784),
          shape(100, 257, 784), shape(100, 100, 15), shape(100, 100, 0), shape(1, 1, 1)}) {
      EXPECT_EQ(SmallBatchOf(p), SmallBatch::kNo);
    }
    Product p = shape(100, 100, 784);
    EXPECT_NE(SmallBatchOf(p), SmallBatch::kNo);
    p.beta = 1;
    EXPECT_EQ(SmallBatchOf(p), SmallBatch::kNo);
    p.beta = 0;
    p.transpose_b = true;
    EXPECT_EQ(SmallBatchOf(p), SmallBatch::kNo);
  }
}

// The backend takes these kernels where it is told to, and nowhere else: their bits tell.
TEST_F(SmallBatchTest, TheBackendTakesThemWithAvx2Alone) {
  for (const bool gradient : {false, true}) {
    Case one(gradient, gradient ? 784 : 100, 100, gradient ? 100 : 784);
    ASSERT_NO_FATAL_FAILURE(Run(one));
    const Product& p = one.product;
    const auto same = [&](CpuIsa isa, bool own_products) {
      CpuBackendOptions options;
      options.isa = isa;
      options.own_products = own_products;
      const auto backend = CreateCpuBackend(options).value();
      std::vector<float> c(p.m * p.n, kNotANumber);
      const ConstMatrix a{p.a, gradient ? p.k : p.m, gradient ? p.m : p.k, p.lda};
      backend->Gemm(gradient ? Transpose::kYes : Transpose::kNo, Transpose::kNo, a,
                    {p.b, p.k, p.n, p.ldb}, 0, {c.data(), p.m, p.n, p.n});
      return std::memcmp(c.data(), p.c, c.size() * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(CpuIsa::kAvx2, true)) << one.Name();
    EXPECT_FALSE(CpuKernelsFor(CpuIsa::kBaseline)->small_batch_forward != nullptr);
    if (!gradient) {  // the gradient's sums are in the same order in OpenBLAS's kernels
      EXPECT_FALSE(same(CpuIsa::kAvx2, false)) << one.Name();
      EXPECT_FALSE(same(CpuIsa::kBaseline, true)) << one.Name();
      if (BestCpuIsa() == CpuIsa::kAvx512) {
        EXPECT_FALSE(same(CpuIsa::kAvx512, true));
      }
    }
  }
}

}  // namespace
}  // namespace passel
