// What cublasLtMatmul() is told of products is checked by what it then computes (cublaslt_test.cc);
// this is what it must not be told.

#include "cuda/gemm_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace passel::cuda {
namespace {

using ::testing::HasSubstr;

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
  const auto with_mask = [&](std::size_t at, std::size_t columns, std::size_t ld) {
    return [=, &mask](LargeGemm& gemm) {
      gemm.epilogue = Epilogue::kMask;
      gemm.mask = mask + at;
      gemm.n = gemm.ldb = gemm.ldc = columns;
      gemm.ld_mask = ld;
    };
  };
  expect(with_mask(8, 2, 128), "16-byte aligned");
  for (const std::size_t ld : {0, 64, 192}) {
    expect(with_mask(0, 2, ld), "a multiple of 128 is needed");
  }
  expect(with_mask(0, 129, 128), "hold 129 bits, but lie 128 apart");
}

}  // namespace
}  // namespace passel::cuda
