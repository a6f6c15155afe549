#include "cuda/large_gemm_emulator.h"

#include <algorithm>
#include <vector>

namespace passel::cuda {
namespace {

// Row i of op(a) op(b).
void RowOfProduct(const LargeGemm& g, std::size_t i, std::vector<double>& row) {
  std::fill(row.begin(), row.end(), 0.0);
  const auto a = [&](std::size_t l) {
    return static_cast<double>(g.transpose_a ? g.a[l * g.lda + i] : g.a[i * g.lda + l]);
  };
  if (g.transpose_b) {
    for (std::size_t j = 0; j < g.n; ++j) {
      for (std::size_t l = 0; l < g.k; ++l)
        row[j] += a(l) * static_cast<double>(g.b[j * g.ldb + l]);
    }
    return;
  }
  for (std::size_t l = 0; l < g.k; ++l) {
    const double factor = a(l);
    for (std::size_t j = 0; j < g.n; ++j)
      row[j] += factor * static_cast<double>(g.b[l * g.ldb + j]);
  }
}

}  // namespace

void EmulateLargeGemm(const LargeGemm& g) {
  std::vector<double> row(g.n);
  for (std::size_t i = 0; i < g.m; ++i) {
    RowOfProduct(g, i, row);
    for (std::size_t j = 0; j < g.n; ++j) {
      auto value = static_cast<float>(row[j]);
      if (g.has_bias()) value += g.bias[j];
      // NaN stays NaN, and is passed on.
      if (g.epilogue == LargeGemm::Epilogue::kBiasRelu && value < 0) value = 0;
      g.c[i * g.ldc + j] = value;
    }
  }
}

}  // namespace passel::cuda
