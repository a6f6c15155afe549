#include "cuda/gemm_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

namespace passel::cuda {
namespace {

constexpr std::size_t kMost = 0x7fffffff;

// A row-major matrix in memory (rows, cols), read as a column-major one.
Status Turn(const char* name, const float* data, std::size_t rows, std::size_t cols, std::size_t ld,
            bool transpose, GemmLayout::Operand* out) {
  if (ld < cols) {
    return InvalidArgument(
        fmt::format("the rows of {} hold {} floats, but lie {} apart", name, cols, ld));
  }
  *out = {data, cols, rows, static_cast<std::int64_t>(ld), transpose};
  return {};
}

}  // namespace

Result<GemmLayout> LayoutOf(const LargeGemm& gemm) {
  if (gemm.m == 0 || gemm.n == 0 || gemm.k == 0) {
    return InvalidArgument(
        fmt::format("a product of {} x {} x {} has nothing to compute", gemm.m, gemm.n, gemm.k));
  }
  const std::size_t largest = std::max({gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc});
  if (largest > kMost) {
    return InvalidArgument(
        fmt::format("a dimension of a product is {}, but at most {} is possible", largest, kMost));
  }
  if (gemm.has_bias() && gemm.bias == nullptr) {
    return InvalidArgument("a product with a bias needs its memory");
  }
  if (gemm.ldc < gemm.n) {
    return InvalidArgument(
        fmt::format("the rows of c hold {} floats, but lie {} apart", gemm.n, gemm.ldc));
  }
  GemmLayout layout;
  PASSEL_RETURN_IF_ERROR(Turn("b", gemm.b, gemm.transpose_b ? gemm.n : gemm.k,
                              gemm.transpose_b ? gemm.k : gemm.n, gemm.ldb, gemm.transpose_b,
                              &layout.first));
  PASSEL_RETURN_IF_ERROR(Turn("a", gemm.a, gemm.transpose_a ? gemm.k : gemm.m,
                              gemm.transpose_a ? gemm.m : gemm.k, gemm.lda, gemm.transpose_a,
                              &layout.second));
  layout.result = gemm.c;
  layout.rows = gemm.n;
  layout.cols = gemm.m;
  layout.inner = gemm.k;
  layout.result_ld = static_cast<std::int64_t>(gemm.ldc);
  layout.epilogue = gemm.epilogue;
  if (gemm.has_bias()) layout.bias = gemm.bias;
  return layout;
}

}  // namespace passel::cuda
