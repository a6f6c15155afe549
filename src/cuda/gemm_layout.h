// gemm_layout.h - a row-major product as cuBLASLt, which counts in columns, computes it.
//
// A row-major matrix (r, c) with leading dimension ld is the same memory as a column-major (c, r)
// with leading dimension ld: its transpose. So
//
//   C (m, n) row-major = op(A) op(B)     is     C^T (n, m) column-major = op(B)^T op(A)^T
//
// and B is handed over first. A bias (n) of the row-major columns is then one value for each row of
// the column-major result, which is what the epilogue of cuBLASLt adds.
//
// Epilogues, by the cuBLAS documentation (cublasLtEpilogue_t, cublasLtMatmulDescAttributes_t):
//
//   RELU_AUX_BIAS   writes, beside the result, a mask of bits in its shape. AUX_LD counts bits, is
//   a
//                   multiple of 128 and no less than the rows of the result: n.
//   DRELU           reads such a mask; DRELU_BGRAD also sums up the rows of the column-major
//   result,
//                   the columns of ours, to a vector of n in place of the bias.
//   BGRADA          sums up the rows of op(first) over the inner dimension: the columns of our
//   op(b).
//
// Which of them a GPU has for which types is not documented: the heuristic is asked.

#pragma once

#include <cstddef>
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
  float* sums = nullptr;        ///< (rows), written in the bias' place; null without
  std::byte* mask = nullptr;    ///< (rows, cols) bits; null without
  std::int64_t mask_ld = 0;     ///< bits from column to column
};

/// Errors: kInvalidArgument for an empty product, a leading dimension that is too small, a
/// dimension above 2^31 - 1, an epilogue without its bias, sums or mask, a mask whose address or
/// rows are not a multiple of 16 bytes.
Result<GemmLayout> LayoutOf(const LargeGemm& gemm);

}  // namespace passel::cuda
