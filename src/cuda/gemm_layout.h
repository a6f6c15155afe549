// gemm_layout.h - a row-major product as cuBLASLt, which counts in columns, computes it.
//
// A row-major matrix (r, c) with leading dimension ld is the same memory as a column-major (c, r)
// with leading dimension ld: its transpose. So
//
//   C (m, n) row-major = op(A) op(B)     is     C^T (n, m) column-major = op(B)^T op(A)^T
//
// and B is handed over first. A bias (n) of the row-major columns is then one value for each row of
// the column-major result, which is what the epilogue of cuBLASLt adds.

#pragma once

#include <cstdint>

#include "base/status.h"
#include "cuda/plan.h"

namespace passel::cuda {

/// What cublasLtMatmul() is told. All column-major.
struct GemmLayout {
  struct Operand {
    const float* data = nullptr;
    std::uint64_t rows = 0;  ///< as it lies in memory, before it is transposed
    std::uint64_t cols = 0;
    std::int64_t ld = 0;  ///< floats from column to column, >= rows
    bool transpose = false;
  };
  Operand first;   ///< op(first) is (rows, inner)
  Operand second;  ///< op(second) is (inner, cols)
  float* result = nullptr;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::uint64_t inner = 0;
  std::int64_t result_ld = 0;
  LargeGemm::Epilogue epilogue = LargeGemm::Epilogue::kNone;
  const float* bias = nullptr;  ///< (rows), read; null without
};

/// Errors: kInvalidArgument for an empty product, a leading dimension that is too small, a
/// dimension above 2^31 - 1, an epilogue without its bias.
Result<GemmLayout> LayoutOf(const LargeGemm& gemm);

}  // namespace passel::cuda
