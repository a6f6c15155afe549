// Compiled once per instruction set by passel_isa_sources(): everything except the table at the
// end is in an unnamed namespace, and no inline function of a library is called (only PASSEL_HD
// ones, which are never out of line), lest a copy built for a wide set be linked into code that
// runs on a narrow one.

#include <cstddef>
#include <cstdint>

#include "compute/cpu_kernels.h"
#include "compute/exp_nonpositive.h"

#if defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
#include "compute/small_batch_isa.h"
#else
namespace passel {
namespace {
constexpr void (*SmallBatchForward)(const Product&, float*) = nullptr;
constexpr void (*SmallBatchGradient)(const Product&, float*) = nullptr;
}  // namespace
}  // namespace passel
#endif

namespace passel {
namespace {

using std::size_t;

constexpr size_t kCacheLine = 64;
// Rows that a gather goes through side by side, a piece of each in turn. Random rows of a data set
// are in L3 or memory: the lines of the next rows are asked for between the pieces, a few at a
// time, since a core waits for few lines at once.
constexpr size_t kGatherRows = 4;
constexpr size_t kGatherPiece = 32;  // bytes of a row; of a fixed number GCC makes no call or tail

inline void ToFloats(const std::uint8_t* __restrict from, size_t count, float* __restrict to) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * (1.f / 255);
}

void Gather(const std::uint8_t* rows, size_t row_bytes, const std::uint32_t* indices, size_t count,
            float* out, size_t ld) {
  const size_t pieces_end = row_bytes / kGatherPiece * kGatherPiece;
  size_t b = 0;
  for (; b + kGatherRows <= count; b += kGatherRows) {
    const std::uint8_t* from[kGatherRows];
    const std::uint8_t* next[kGatherRows];
    for (size_t k = 0; k < kGatherRows; ++k) {
      const size_t ahead = b + kGatherRows + k;
      from[k] = rows + size_t{indices[b + k]} * row_bytes;
      next[k] = ahead < count ? rows + size_t{indices[ahead]} * row_bytes : from[k];
    }
    for (size_t i = 0; i < pieces_end; i += kGatherPiece) {
      for (size_t k = 0; k < kGatherRows; ++k) {
        if (i % kCacheLine == 0) __builtin_prefetch(next[k] + i);
        ToFloats(from[k] + i, kGatherPiece, out + (b + k) * ld + i);
      }
    }
    for (size_t k = 0; k < kGatherRows; ++k) {
      if (pieces_end < row_bytes) __builtin_prefetch(next[k] + pieces_end);
      ToFloats(from[k] + pieces_end, row_bytes - pieces_end, out + (b + k) * ld + pieces_end);
    }
  }
  for (; b < count; ++b) {
    ToFloats(rows + size_t{indices[b]} * row_bytes, row_bytes, out + b * ld);
  }
}

void Bias(const float* __restrict bias, float* __restrict y, size_t rows, size_t cols, size_t ld) {
  for (size_t b = 0; b < rows; ++b, y += ld) {
    for (size_t j = 0; j < cols; ++j) y[j] += bias[j];
  }
}

void BiasRelu(const float* __restrict bias, float* __restrict y, size_t rows, size_t cols,
              size_t ld) {
  for (size_t b = 0; b < rows; ++b, y += ld) {
    for (size_t j = 0; j < cols; ++j) {
      const float v = y[j] + bias[j];
      y[j] = v < 0 ? 0.f : v;
    }
  }
}

void ReluBackward(const float* __restrict h, size_t ldh, float* __restrict d, size_t ldd,
                  size_t rows, size_t cols, float* __restrict sums) {
  for (size_t j = 0; j < cols; ++j) sums[j] = 0;
  for (size_t b = 0; b < rows; ++b, h += ldh, d += ldd) {
    for (size_t j = 0; j < cols; ++j) {
      const float v = h[j] <= 0 ? 0.f : d[j];
      d[j] = v;
      sums[j] += v;
    }
  }
}

void ColumnSums(const float* __restrict d, size_t ld, size_t rows, size_t cols,
                float* __restrict sums) {
  for (size_t j = 0; j < cols; ++j) sums[j] = 0;
  for (size_t b = 0; b < rows; ++b, d += ld) {
    for (size_t j = 0; j < cols; ++j) sums[j] += d[j];
  }
}

void ExpNonPositives(const float* __restrict x, float* __restrict y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = ExpNonPositive(x[i]);
}

// The largest of y; NaN only if all candidates that were compared are, which the caller's sums
// show anyway.
inline float RowMax(const float* y, size_t cols) {
  float m = y[0];
  for (size_t j = 1; j < cols; ++j) m = y[j] > m ? y[j] : m;
  return m;
}

// y = exp(y - m); returns the sum, in the order of the columns.
inline float ExpRow(float* __restrict y, size_t cols, float m) {
  for (size_t j = 0; j < cols; ++j) y[j] = ExpNonPositive(y[j] - m);
  float z = 0;
  for (size_t j = 0; j < cols; ++j) z += y[j];
  return z;
}

void Softmax(float* y, size_t rows, size_t cols, size_t ld) {
  for (size_t b = 0; b < rows; ++b, y += ld) {
    const float inverse = 1.f / ExpRow(y, cols, RowMax(y, cols));
    for (size_t j = 0; j < cols; ++j) y[j] *= inverse;
  }
}

void CrossEntropy(float* y, size_t rows, size_t cols, size_t ld, const std::uint8_t* labels,
                  float clip, float scale, double* loss_sum, size_t* correct) {
  // log z of many rows is one log of their product: 1 <= z <= 256, so 64 rows stay below 1e155.
  constexpr size_t kRowsPerLog = 64;
  const double clipped_loss = clip > 0 ? -__builtin_log(static_cast<double>(clip)) : 0;
  double loss = 0, product = 1;
  size_t hits = 0;
  for (size_t b = 0; b < rows; ++b, y += ld) {
    const size_t label = labels[b];
    const float m = RowMax(y, cols);
    const float shifted = y[label] - m;
    bool hit = shifted == 0;
    for (size_t j = 0; j < label; ++j) hit &= !(y[j] == m);
    hits += hit;
    const float z = ExpRow(y, cols, m);
    const float inverse = 1.f / z;
    const float p = y[label] * inverse;
    if (p < clip) {
      loss += clipped_loss;
      for (size_t j = 0; j < cols; ++j) y[j] = 0;
    } else {
      loss -= static_cast<double>(shifted);
      product *= static_cast<double>(z);
      for (size_t j = 0; j < cols; ++j) y[j] = (y[j] * inverse) * scale;
      y[label] = (p - 1.f) * scale;
    }
    if (b % kRowsPerLog == kRowsPerLog - 1) {
      loss += __builtin_log(product);
      product = 1;
    }
  }
  *loss_sum = loss + __builtin_log(product);
  *correct = hits;
}

}  // namespace

#define PASSEL_JOIN_INNER(a, b) a##b
#define PASSEL_JOIN(a, b) PASSEL_JOIN_INNER(a, b)
extern const CpuKernels PASSEL_JOIN(kCpuKernels_, PASSEL_ISA);
const CpuKernels PASSEL_JOIN(kCpuKernels_, PASSEL_ISA) = {
    Gather,  Bias,         BiasRelu,        ReluBackward,      ColumnSums,
    Softmax, CrossEntropy, ExpNonPositives, SmallBatchForward, SmallBatchGradient};

}  // namespace passel
