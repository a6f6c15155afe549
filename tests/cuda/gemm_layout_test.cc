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
  for (const auto epilogue : {LargeGemm::Epilogue::kBias, LargeGemm::Epilogue::kBiasRelu}) {
    expect([=](LargeGemm& gemm) { gemm.epilogue = epilogue; }, "bias");
  }
}

}  // namespace
}  // namespace passel::cuda
