// cpu_kernels.h - the element-wise work of the CPU backend, one table per instruction set, and
// some of its products.
//
// All matrices are row-major; `ld` counts floats from row to row. Sizes may be zero. A sum over
// rows is taken in the order of the rows, and no multiply-add is contracted, so every table gives
// the same bits (products apart).

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_isa.h"

namespace passel {

struct Product;

struct CpuKernels {
  /// out[b, i] = float(rows[indices[b] * row_bytes + i]) * (1.f / 255), i < row_bytes.
  void (*gather)(const std::uint8_t* rows, std::size_t row_bytes, const std::uint32_t* indices,
                 std::size_t count, float* out, std::size_t ld);
  /// y[b, j] += bias[j].
  void (*bias)(const float* bias, float* y, std::size_t rows, std::size_t cols, std::size_t ld);
  /// y[b, j] = relu(y[b, j] + bias[j]); NaN stays NaN.
  void (*bias_relu)(const float* bias, float* y, std::size_t rows, std::size_t cols,
                    std::size_t ld);
  /// d[b, j] = 0 where h[b, j] <= 0; sums[j] = sum over b of d[b, j]. REQUIRES: no overlap.
  void (*relu_backward)(const float* h, std::size_t ldh, float* d, std::size_t ldd,
                        std::size_t rows, std::size_t cols, float* sums);
  /// sums[j] = sum over b of d[b, j].
  void (*column_sums)(const float* d, std::size_t ld, std::size_t rows, std::size_t cols,
                      float* sums);
  /// Each row of y becomes its softmax. REQUIRES: cols > 0.
  void (*softmax)(float* y, std::size_t rows, std::size_t cols, std::size_t ld);
  /// As Backend::CrossEntropy; a true-class probability below `clip` counts as `clip` and has
  /// gradient 0 (0: no clip). REQUIRES: 0 < cols <= 256, labels[b] < cols.
  void (*cross_entropy)(float* y, std::size_t rows, std::size_t cols, std::size_t ld,
                        const std::uint8_t* labels, float clip, float scale, double* loss_sum,
                        std::size_t* correct);
  /// y[i] = exp(x[i]) for x[i] <= 0, within 1 ulp; 0 below ln(FLT_MIN) = -87.33654; NaN for NaN.
  void (*exp_nonpositive)(const float* x, float* y, std::size_t n);
  /// A product that SmallBatchOf() calls kForward or kGradient (small_batch.h); null in a table
  /// that leaves it to OpenBLAS. `scratch`: kSmallBatchScratch floats, 64-byte aligned.
  void (*small_batch_forward)(const Product& product, float* scratch);
  void (*small_batch_gradient)(const Product& product, float* scratch);
};

/// The table for `isa`, or null if this build has none.
const CpuKernels* CpuKernelsFor(CpuIsa isa);

}  // namespace passel
