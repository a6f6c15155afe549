// small_batch.h - which products of a training step run on passel's own kernels, not on OpenBLAS.

#pragma once

#include <cstddef>

#include "compute/product.h"

namespace passel {

inline constexpr std::size_t kSmallBatch = 128;         ///< rows of a batch, at most
inline constexpr std::size_t kSmallBatchOutputs = 256;  ///< columns of the result, at most
/// Columns of the result, rows of a gradient and inputs, at least: the kernels' narrowest panel.
inline constexpr std::size_t kSmallBatchPanel = 16;
/// Floats of memory that a kernel needs, 64-byte aligned: a panel of 24 columns of the batch and
/// all columns of the other operand.
inline constexpr std::size_t kSmallBatchScratch = kSmallBatch * (24 + kSmallBatchOutputs);

enum class SmallBatch {
  kNo,
  kForward,   ///< c = a b, with m rows of a batch
  kGradient,  ///< c = a^T b, with k rows of a batch
};

/// For a backend with AVX2 and one thread. Measured on a core of an AMD EPYC against OpenBLAS
/// 0.3.21 with its kernels for Haswell, medians of products in turn, batches of 16 to 128, 16 to
/// 256 outputs, 16 to 4,096 inputs: forward is 1.01 to 1.88 times as fast (geometric mean of 356
/// shapes 1.26), the gradient of 512 inputs and more 1.00 to 1.97 times (148 shapes, 1.25). With
/// fewer inputs it is slower at times (0.58 at the worst): too few panels for what is copied
/// beforehand.
inline SmallBatch SmallBatchOf(const Product& p) {
  constexpr std::size_t kLeastBatch = 16;
  constexpr std::size_t kLeastGradientRows = 512;
  if (p.beta != 0 || p.transpose_b) return SmallBatch::kNo;
  if (p.n < kSmallBatchPanel || p.n > kSmallBatchOutputs) return SmallBatch::kNo;
  const std::size_t batch = p.transpose_a ? p.k : p.m;
  if (batch < kLeastBatch || batch > kSmallBatch) return SmallBatch::kNo;
  if (p.transpose_a) return p.m < kLeastGradientRows ? SmallBatch::kNo : SmallBatch::kGradient;
  return p.k < kSmallBatchPanel ? SmallBatch::kNo : SmallBatch::kForward;
}

}  // namespace passel
