#include "compute/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.h"

// Under AddressSanitizer: let an allocation that is too large fail as it does elsewhere.
extern "C" __attribute__((visibility("default"), used)) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace passel {
namespace {

using testing::HasSubstr;

constexpr float kUntouched = -12345.f;

std::unique_ptr<Backend> Make(CpuBackendOptions options = {}) {
  Result<std::unique_ptr<Backend>> backend = CreateCpuBackend(options);
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  return std::move(backend).value();
}

std::vector<float> Randoms(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(random.Uniform() - 0.5);
  return values;
}

struct Shape {
  std::size_t m, n, k;
};

// Compares with a product in double precision, element by element, and looks at the padding.
void ExpectProduct(Backend& backend, Shape s, Transpose ta, Transpose tb, float beta) {
  const bool a_t = ta == Transpose::kYes, b_t = tb == Transpose::kYes;
  const std::size_t lda = (a_t ? s.m : s.k) + 3, ldb = (b_t ? s.k : s.n) + 1, ldc = s.n + 5;
  const std::vector<float> a = Randoms((a_t ? s.k : s.m) * lda, 1);
  const std::vector<float> b = Randoms((b_t ? s.n : s.k) * ldb, 2);
  std::vector<float> start = Randoms(s.m * ldc, 3);
  if (beta == 0) start.assign(start.size(), std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < s.m; ++i) {
    for (std::size_t j = s.n; j < ldc; ++j) start[i * ldc + j] = kUntouched;
  }
  std::vector<float> c = start;
  backend.Gemm(ta, tb, {a.data(), a_t ? s.k : s.m, a_t ? s.m : s.k, lda},
               {b.data(), b_t ? s.n : s.k, b_t ? s.k : s.n, ldb}, beta, {c.data(), s.m, s.n, ldc});
  ASSERT_TRUE(backend.Finish().ok());
  for (std::size_t i = 0; i < s.m; ++i) {
    for (std::size_t j = 0; j < s.n; ++j) {
      double want = beta == 0 ? 0 : static_cast<double>(beta * start[i * ldc + j]), size = 1;
      for (std::size_t p = 0; p < s.k; ++p) {
        const double term = static_cast<double>(a_t ? a[p * lda + i] : a[i * lda + p]) *
                            static_cast<double>(b_t ? b[j * ldb + p] : b[p * ldb + j]);
        want += term;
        size += std::abs(term);
      }
      // |error| <= k u sum|terms| for any order of summation; in practice far less than this.
      ASSERT_NEAR(c[i * ldc + j], want, size * 4 * std::sqrt(s.k + 1.0) * 0x1p-24)
          << s.m << "x" << s.n << "x" << s.k << " at " << i << ", " << j;
    }
    for (std::size_t j = s.n; j < ldc; ++j) ASSERT_EQ(c[i * ldc + j], kUntouched);
  }
}

TEST(CpuBackendTest, ProductsMatchDoublePrecisionInOnePieceAndInSeveral) {
  // The last four are above 10^6 multiplications: along k, along m, with a rest, and too thin.
  const Shape shapes[] = {{1, 1, 1},       {7, 5, 3},       {100, 10, 100}, {1, 100, 784},
                          {100, 100, 784}, {784, 100, 100}, {99, 101, 787}, {130, 300, 140}};
  for (const bool split : {false, true}) {
    CpuBackendOptions options;
    options.split_products = split;
    const auto backend = Make(options);
    for (const Shape& s : shapes) {
      for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
        for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
          for (const float beta : {0.f, 1.f}) ExpectProduct(*backend, s, ta, tb, beta);
        }
      }
    }
  }
}

TEST(CpuBackendTest, MemoryIsZeroedAndAligned) {
  const auto backend = Make();
  for (const std::size_t bytes : {1u, 64u, 4097u}) {
    const Result<Backend::Memory> memory = backend->Allocate(bytes);
    ASSERT_TRUE(memory.ok());
    const auto* p = static_cast<const unsigned char*>(memory->get());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(p[i], 0);
  }
}

TEST(CpuBackendTest, TooMuchMemoryIsAnErrorThatNamesTheBytes) {
  const auto backend = Make();
  const Result<Backend::Memory> memory = backend->Allocate(std::size_t{1} << 60);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(memory.status().message(), HasSubstr("1152921504606846976 bytes"));
}

TEST(CpuBackendTest, GatherFetchesPixelsAndLabelsOfTheSameRows) {
  const auto backend = Make();
  const std::vector<std::uint8_t> pixels = {0, 255, 51, 102, 204, 153};
  const std::vector<std::uint8_t> labels = {4, 5, 6};
  const std::vector<std::uint32_t> indices = {2, 0};
  std::vector<float> out(4);
  std::vector<std::uint8_t> labels_out(2);
  backend->Gather({pixels.data(), labels.data(), 3}, indices, {out.data(), 2, 2, 2},
                  labels_out.data());
  EXPECT_THAT(out, testing::ElementsAre(204 * (1.f / 255), 153 * (1.f / 255), 0.f, 1.f));
  EXPECT_THAT(labels_out, testing::ElementsAre(6, 4));
}

TEST(CpuBackendTest, ABadNumberOfThreadsIsAnErrorAndChangesNothing) {
  ASSERT_TRUE(SetThreads(2).ok());
  for (const int threads : {0, -1}) {
    const Status status = SetThreads(threads);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("at least 1"));
  }
  const Status status = SetThreads(1'000'000);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("at most"));
  CpuBackendOptions options;
  options.threads = 0;
  EXPECT_FALSE(CreateCpuBackend(options).ok());
  EXPECT_EQ(GetThreads(), 2);
  ASSERT_TRUE(SetThreads(1).ok());
  EXPECT_EQ(GetThreads(), 1);
}

TEST(CpuBackendTest, AnInstructionSetThatTheProcessorLacksIsAnError) {
  if (BestCpuIsa() == CpuIsa::kAvx512) GTEST_SKIP() << "this processor has them all";
  CpuBackendOptions options;
  options.isa = CpuIsa::kAvx512;
  const auto backend = CreateCpuBackend(options);
  ASSERT_FALSE(backend.ok());
  EXPECT_THAT(backend.status().message(), HasSubstr("avx512"));
}

TEST(CpuBackendDeathTest, MistakesOfTheCallerStopTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // OpenBLAS has threads
  const auto backend = Make();
  const std::vector<std::uint8_t> pixels(6), labels = {0, 1, 2};
  const Examples examples{pixels.data(), labels.data(), 3};
  std::vector<float> out(8);
  const std::vector<std::uint32_t> outside = {3};
  EXPECT_DEATH(backend->Gather(examples, outside, {out.data(), 1, 2, 2}, nullptr),
               "an index lies outside the examples");
  BatchLoss loss;
  EXPECT_DEATH(backend->CrossEntropy({}, labels.data(), {out.data(), 3, 2, 2}, &loss),
               "a label lies outside the classes");
  EXPECT_DEATH(backend->Gemm(Transpose::kNo, Transpose::kNo, {out.data(), 2, 2, 2},
                             {out.data(), 3, 2, 2}, 0, {out.data(), 2, 2, 2}),
               "the shapes of a product do not fit");
}

}  // namespace
}  // namespace passel
