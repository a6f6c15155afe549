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

bool MaskBit(const LargeGemm& g, std::size_t bit) {
  return ((std::to_integer<unsigned>(g.mask[bit / 8]) >> (bit % 8)) & 1u) != 0;
}

void SetMaskBit(const LargeGemm& g, std::size_t bit, bool value) {
  const std::byte one = std::byte{1} << (bit % 8);
  g.mask[bit / 8] = value ? g.mask[bit / 8] | one : g.mask[bit / 8] & ~one;
}

}  // namespace

void EmulateLargeGemm(const LargeGemm& g) {
  std::vector<double> row(g.n), sums(g.n);
  for (std::size_t i = 0; i < g.m; ++i) {
    RowOfProduct(g, i, row);
    for (std::size_t j = 0; j < g.n; ++j) {
      auto value = static_cast<float>(row[j]);
      const std::size_t bit = i * g.ld_mask + j;
      if (g.has_bias()) value += g.bias[j];
      if (g.writes_mask()) SetMaskBit(g, bit, !(value <= 0));  // NaN stays NaN, and is passed on
      if ((g.epilogue == LargeGemm::Epilogue::kBiasRelu || g.writes_mask()) && value < 0) value = 0;
      if (g.reads_mask() && !MaskBit(g, bit)) value = 0;
      if (g.epilogue == LargeGemm::Epilogue::kMaskSums) sums[j] += static_cast<double>(value);
      g.c[i * g.ldc + j] = value;
    }
    for (std::size_t j = g.n; g.writes_mask() && j < g.ld_mask; ++j) {
      SetMaskBit(g, i * g.ld_mask + j, true);
    }
  }
  if (g.epilogue == LargeGemm::Epilogue::kSums) {
    for (std::size_t l = 0; l < g.k; ++l) {
      for (std::size_t j = 0; j < g.n; ++j) {
        sums[j] += static_cast<double>(g.transpose_b ? g.b[j * g.ldb + l] : g.b[l * g.ldb + j]);
      }
    }
  }
  for (std::size_t j = 0; g.has_sums() && j < g.n; ++j) g.sums[j] = static_cast<float>(sums[j]);
}

}  // namespace passel::cuda
