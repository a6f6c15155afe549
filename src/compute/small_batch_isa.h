// small_batch_isa.h - the products of small_batch.h with AVX2 and FMA. A part of
// cpu_kernels_isa.cc, included there alone and only for that instruction set.
//
// A library for products of any size copies both operands into its own order first, which takes a
// tenth of the time here. Instead one operand is cut into panels that stay in L1, each copied by
// the first tile that multiplies with it, and the other is read where it lies:
//
//   forward    a panel is 24 columns of b (the weights); a tile is 4 rows of c by the panel.
//   gradient   a panel is 24 columns of a (the inputs); a tile is these 24 rows of c by 4 columns,
//              and since a is its vector operand, it is transposed on the way to c.
//
// So a tile has 12 sums in registers, enough to keep both multipliers busy. Everything else is
// edges. An element's sum is taken in an order that follows from k and n alone, by fused
// multiply-adds from 0: a row does not depend on how many others there are.

#pragma once

#include <immintrin.h>

#include <cstddef>

#include "compute/small_batch.h"

// Loops over the registers of a tile must vanish, or the registers become memory.
#define PASSEL_TILE inline __attribute__((always_inline))
#define PASSEL_UNROLL _Pragma("GCC unroll 16")

namespace passel {
namespace {

using Vector = __m256;
constexpr std::size_t kLanes = 8;
constexpr std::size_t kLineFloats = 16;
constexpr std::size_t kPanelVectors = 3, kPanelColumns = kPanelVectors * kLanes;
constexpr std::size_t kTile = 4;  // rows forward, columns of the gradient
// Rows of a forward panel at most, so that it stays in L1 with the rows of a that pass by.
constexpr std::size_t kPanelRows = 224;
static_assert(kPanelRows * kPanelColumns <= kSmallBatchScratch && kPanelRows % kLanes == 0);
static_assert(kSmallBatchPanel == 2 * kLanes);

PASSEL_TILE void Prefetch(const float* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

// GCC is not to know that this pointer is another one plus a constant: it would keep one offset for
// each unrolled row, on the stack.
PASSEL_TILE void Forget(const float*& p) { asm("" : "+r"(p)); }

// c (kRows, kVectors * 8) = a b, or += where `add`. b is `panel`, or lies at `b`, and is copied to
// `panel`. Asks for the lines of `next_a`, the rows after these.
template <int kRows, int kVectors, bool kCopy>
PASSEL_TILE void ForwardTile(const float* a, std::size_t lda, const float* next_a, const float* b,
                             std::size_t ldb, float* panel, std::size_t k, bool add, float* c,
                             std::size_t ldc) {
  constexpr std::size_t kWidth = kVectors * kLanes;
  constexpr std::size_t kRowsAhead = 8;
  Vector sums[kRows][kVectors];
  PASSEL_UNROLL for (int i = 0; i < kRows; ++i) {
    PASSEL_UNROLL for (int j = 0; j < kVectors; ++j) sums[i][j] = _mm256_setzero_ps();
  }
  const auto multiply = [&](std::size_t p) __attribute__((always_inline)) {
    Vector row[kVectors];
    if constexpr (kCopy) {
      if (p + kRowsAhead < k) {
        Prefetch(b + kRowsAhead * ldb);
        Prefetch(b + kRowsAhead * ldb + kWidth - 1);
      }
      PASSEL_UNROLL for (int j = 0; j < kVectors; ++j) {
        row[j] = _mm256_loadu_ps(b + j * kLanes);
        _mm256_store_ps(panel + p * kWidth + j * kLanes, row[j]);
      }
      b += ldb;
      Forget(b);
    } else {
      PASSEL_UNROLL for (int j = 0; j < kVectors; ++j) {
        row[j] = _mm256_load_ps(panel + p * kWidth + j * kLanes);
      }
    }
    PASSEL_UNROLL for (int i = 0; i < kRows; ++i) {
      const Vector factor = _mm256_broadcast_ss(a + i * lda + p);
      PASSEL_UNROLL for (int j = 0; j < kVectors; ++j) {
        sums[i][j] = _mm256_fmadd_ps(factor, row[j], sums[i][j]);
      }
    }
  };
  std::size_t p = 0;
  for (; p + kLineFloats <= k; p += kLineFloats) {
    PASSEL_UNROLL for (int i = 0; i < kRows; ++i) Prefetch(next_a + i * lda + p);
    PASSEL_UNROLL for (std::size_t u = 0; u < kLineFloats; ++u) multiply(p + u);
  }
  for (; p < k; ++p) multiply(p);
  PASSEL_UNROLL for (int i = 0; i < kRows; ++i) {
    PASSEL_UNROLL for (int j = 0; j < kVectors; ++j) {
      float* const to = c + i * ldc + j * kLanes;
      if (add) sums[i][j] = _mm256_add_ps(sums[i][j], _mm256_loadu_ps(to));
      _mm256_storeu_ps(to, sums[i][j]);
    }
  }
}

// All m >= 4 rows of c by one panel of k rows.
template <int kVectors>
PASSEL_TILE void ForwardPanel(const Product& product, const float* a, const float* b, float* panel,
                              std::size_t k, bool add, float* c) {
  const std::size_t m = product.m, lda = product.lda, ldb = product.ldb, ldc = product.ldc;
  const auto next = [&](std::size_t i) {  // of tile i; the last has none
    return a + (i + 2 * kTile <= m ? i + kTile : i) * lda;
  };
  ForwardTile<kTile, kVectors, true>(a, lda, next(0), b, ldb, panel, k, add, c, ldc);
  std::size_t i = kTile;
  for (; i + kTile <= m; i += kTile) {
    ForwardTile<kTile, kVectors, false>(a + i * lda, lda, next(i), nullptr, 0, panel, k, add,
                                        c + i * ldc, ldc);
  }
  for (; i < m; ++i) {
    ForwardTile<1, kVectors, false>(a + i * lda, lda, a + i * lda, nullptr, 0, panel, k, add,
                                    c + i * ldc, ldc);
  }
}

// The sums of the lanes of each.
PASSEL_TILE __m128 SumsOfLanes(const Vector (&v)[kTile]) {
  const Vector sums = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

// c (kRows, 4) = a b, or +=, where b lies in `columns`, each kPanelRows long, with zeros up to a
// multiple of 8: the vectors run along k. Only the columns from `first` on are stored.
template <int kRows>
PASSEL_TILE void DotTile(const float* a, std::size_t lda, const float* columns, std::size_t k,
                         bool add, std::size_t first, float* c, std::size_t ldc) {
  static constexpr int kMasks[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
  Vector sums[kRows][kTile];
  PASSEL_UNROLL for (int i = 0; i < kRows; ++i) {
    PASSEL_UNROLL for (std::size_t j = 0; j < kTile; ++j) sums[i][j] = _mm256_setzero_ps();
  }
  const auto multiply = [&](std::size_t p, const Vector(&row)[kRows])
      __attribute__((always_inline)) {
    PASSEL_UNROLL for (std::size_t j = 0; j < kTile; ++j) {
      const Vector column = _mm256_load_ps(columns + j * kPanelRows + p);
      PASSEL_UNROLL for (int i = 0; i < kRows; ++i) {
        sums[i][j] = _mm256_fmadd_ps(row[i], column, sums[i][j]);
      }
    }
  };
  Vector row[kRows];
  std::size_t p = 0;
  for (; p + kLanes <= k; p += kLanes) {
    PASSEL_UNROLL for (int i = 0; i < kRows; ++i) row[i] = _mm256_loadu_ps(a + i * lda + p);
    multiply(p, row);
  }
  if (p < k) {
    const __m256i mask =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + kLanes - (k - p)));
    PASSEL_UNROLL for (int i = 0; i < kRows; ++i) {
      row[i] = _mm256_maskload_ps(a + i * lda + p, mask);
    }
    multiply(p, row);
  }
  PASSEL_UNROLL for (int i = 0; i < kRows; ++i) {
    const __m128 found = SumsOfLanes(sums[i]);
    float* const to = c + i * ldc;
    if (first == 0) {
      _mm_storeu_ps(to, add ? _mm_add_ps(found, _mm_loadu_ps(to)) : found);
    } else {
      for (std::size_t j = first; j < kTile; ++j) to[j] = add ? found[j] + to[j] : found[j];
    }
  }
}

// All rows of c by 4 columns.
PASSEL_TILE void DotColumns(const Product& product, const float* a, const float* b, float* columns,
                            std::size_t k, bool add, std::size_t first, float* c) {
  const std::size_t ldb = product.ldb, lda = product.lda, ldc = product.ldc;
  std::size_t p = 0;
  for (; p + kTile <= k; p += kTile) {
    __m128 rows[kTile];
    PASSEL_UNROLL for (std::size_t i = 0; i < kTile; ++i) rows[i] = _mm_loadu_ps(b + (p + i) * ldb);
    _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
    PASSEL_UNROLL for (std::size_t j = 0; j < kTile; ++j) {
      _mm_store_ps(columns + j * kPanelRows + p, rows[j]);
    }
  }
  for (; p < k || p % kLanes != 0; ++p) {
    for (std::size_t j = 0; j < kTile; ++j) {
      columns[j * kPanelRows + p] = p < k ? b[p * ldb + j] : 0;
    }
  }
  std::size_t i = 0;
  for (; i + 2 <= product.m; i += 2) {
    DotTile<2>(a + i * lda, lda, columns, k, add, first, c + i * ldc, ldc);
  }
  if (i < product.m) DotTile<1>(a + i * lda, lda, columns, k, add, first, c + i * ldc, ldc);
}

// REQUIRES: SmallBatchOf(product) == kForward.
void SmallBatchForward(const Product& product, float* scratch) {
  const std::size_t n = product.n, parts = (product.k + kPanelRows - 1) / kPanelRows;
  const std::size_t share = (product.k + parts - 1) / parts;
  const std::size_t step = (share + kLineFloats - 1) / kLineFloats * kLineFloats;
  for (std::size_t p = 0; p < product.k; p += step) {
    const std::size_t k = product.k - p < step ? product.k - p : step;
    const float* const a = product.a + p;
    const float* const b = product.b + p * product.ldb;
    float* const c = product.c;
    const bool add = p > 0;
    std::size_t j = 0;
    while (n - j >= 2 * kLanes) {
      // 32 columns are two panels of 16: one of 8 would have too few sums.
      if (n - j >= kPanelColumns && (n - j) / kLanes != 4) {
        ForwardPanel<kPanelVectors>(product, a, b + j, scratch, k, add, c + j);
        j += kPanelColumns;
      } else {
        ForwardPanel<2>(product, a, b + j, scratch, k, add, c + j);
        j += 2 * kLanes;
      }
    }
    // Up to 7 columns are left; the last 4 of all may hold some that are done.
    if (n - j > kTile) {
      DotColumns(product, a, b + j, scratch, k, add, 0, c + j);
      j += kTile;
    }
    if (j < n) {
      const std::size_t last = n - kTile;
      DotColumns(product, a, b + last, scratch, k, add, j - last, c + last);
    }
  }
}

// c (kVectors * 8, 4) = a^T b. a is `panel`, or lies at `a`, and is copied to `panel`; b lies in
// `columns`, rows of 4.
template <int kVectors, bool kCopy>
PASSEL_TILE void GradientTile(const float* a, std::size_t lda, float* panel, const float* columns,
                              std::size_t k, float* c, std::size_t ldc) {
  constexpr std::size_t kWidth = kVectors * kLanes;
  constexpr std::size_t kUnrolled = 4;
  Vector sums[kVectors][kTile];
  PASSEL_UNROLL for (int v = 0; v < kVectors; ++v) {
    PASSEL_UNROLL for (std::size_t j = 0; j < kTile; ++j) sums[v][j] = _mm256_setzero_ps();
  }
  const auto multiply = [&](std::size_t p) __attribute__((always_inline)) {
    Vector row[kVectors];
    PASSEL_UNROLL for (int v = 0; v < kVectors; ++v) {
      if constexpr (kCopy) {
        row[v] = _mm256_loadu_ps(a + v * kLanes);
        _mm256_store_ps(panel + p * kWidth + v * kLanes, row[v]);
      } else {
        row[v] = _mm256_load_ps(panel + p * kWidth + v * kLanes);
      }
    }
    if constexpr (kCopy) {
      a += lda;
      Forget(a);
    }
    PASSEL_UNROLL for (std::size_t j = 0; j < kTile; ++j) {
      const Vector factor = _mm256_broadcast_ss(columns + p * kTile + j);
      PASSEL_UNROLL for (int v = 0; v < kVectors; ++v) {
        sums[v][j] = _mm256_fmadd_ps(factor, row[v], sums[v][j]);
      }
    }
  };
  std::size_t p = 0;
  for (; p + kUnrolled <= k; p += kUnrolled) {
    PASSEL_UNROLL for (std::size_t u = 0; u < kUnrolled; ++u) multiply(p + u);
  }
  for (; p < k; ++p) multiply(p);
  PASSEL_UNROLL for (int v = 0; v < kVectors; ++v) {
    const Vector low01 = _mm256_unpacklo_ps(sums[v][0], sums[v][1]);
    const Vector high01 = _mm256_unpackhi_ps(sums[v][0], sums[v][1]);
    const Vector low23 = _mm256_unpacklo_ps(sums[v][2], sums[v][3]);
    const Vector high23 = _mm256_unpackhi_ps(sums[v][2], sums[v][3]);
    const Vector rows[4] = {
        // i and i + 4
        _mm256_shuffle_ps(low01, low23, 0x44), _mm256_shuffle_ps(low01, low23, 0xee),
        _mm256_shuffle_ps(high01, high23, 0x44), _mm256_shuffle_ps(high01, high23, 0xee)};
    PASSEL_UNROLL for (int i = 0; i < 4; ++i) {
      float* const to = c + (v * kLanes + i) * ldc;
      _mm_storeu_ps(to, _mm256_castps256_ps128(rows[i]));
      _mm_storeu_ps(to + 4 * ldc, _mm256_extractf128_ps(rows[i], 1));
    }
  }
}

// kVectors * 8 rows of c.
template <int kVectors>
PASSEL_TILE void GradientPanel(const Product& product, const float* a, float* panel,
                               const float* columns, float* c) {
  const std::size_t n = product.n, k = product.k, lda = product.lda, ldc = product.ldc;
  GradientTile<kVectors, true>(a, lda, panel, columns, k, c, ldc);
  for (std::size_t j = kTile; j < n; j += kTile) {
    columns += k * kTile;
    const std::size_t at = j + kTile <= n ? j : n - kTile;
    GradientTile<kVectors, false>(nullptr, 0, panel, columns, k, c + at, ldc);
  }
}

// REQUIRES: SmallBatchOf(product) == kGradient. Where tiles do not fit evenly, the last ones
// overlap, and the same numbers are stored twice.
void SmallBatchGradient(const Product& product, float* scratch) {
  const std::size_t m = product.m, n = product.n, k = product.k;
  float* const panel = scratch;
  float* const columns = scratch + kPanelColumns * kSmallBatch;
  for (std::size_t p = 0; p < k; ++p) {
    const float* const row = product.b + p * product.ldb;
    float* to = columns + p * kTile;
    for (std::size_t j = 0; j < n; j += kTile, to += k * kTile) {
      _mm_store_ps(to, _mm_loadu_ps(row + (j + kTile <= n ? j : n - kTile)));
    }
  }
  std::size_t i = 0;
  for (; i + kPanelColumns <= m; i += kPanelColumns) {
    GradientPanel<kPanelVectors>(product, product.a + i, panel, columns,
                                 product.c + i * product.ldc);
  }
  while (i < m) {
    const std::size_t at = i + 2 * kLanes <= m ? i : m - 2 * kLanes;
    GradientPanel<2>(product, product.a + at, panel, columns, product.c + at * product.ldc);
    i = at + 2 * kLanes;
  }
}

}  // namespace
}  // namespace passel

#undef PASSEL_TILE
#undef PASSEL_UNROLL
