#include "compute/matrix_kernels.h"

#include <gtest/gtest.h>

namespace passel {
namespace {

TEST(MatrixKernelsTest, TheNumberSaysTheSameAsTheName) {
  for (const int threads : {1, 2}) {
    const std::uint64_t code = MatrixKernelsCode(threads);
    EXPECT_NE(code, 0u);
    EXPECT_LT(code, std::uint64_t{1} << 56);
    EXPECT_EQ(MatrixKernelsOf(code), MatrixKernels(threads));
  }
  EXPECT_EQ(MatrixKernels(2), MatrixLibraryCore()) << "whole, by OpenBLAS alone";
}

// Numbers lie in arenas that processes of several builds share.
TEST(MatrixKernelsTest, NumbersKeepTheirMeaning) {
  EXPECT_EQ(MatrixKernelsOf(0), "");
  EXPECT_EQ(MatrixKernelsOf(1), "Haswell");
  EXPECT_EQ(MatrixKernelsOf(1 | 0x200), "Haswell, small batches by passel");
  EXPECT_EQ(MatrixKernelsOf(2 | 0x100), "SkylakeX, in pieces");
  EXPECT_EQ(MatrixKernelsOf(0xfe), "another");
}

}  // namespace
}  // namespace passel
