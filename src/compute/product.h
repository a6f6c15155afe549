// product.h - one matrix product, as a whole or as several smaller ones.

#pragma once

#include <algorithm>
#include <cstddef>

namespace passel {

/// c = op(a) op(b) + beta c, row-major float32: op(a) is (m, k), op(b) (k, n), c (m, n). With
/// beta == 0 c is written, never read.
struct Product {
  bool transpose_a = false, transpose_b = false;
  std::size_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::size_t lda = 0;  ///< floats from one row to the next, of the matrix as it lies in memory
  const float* b = nullptr;
  std::size_t ldb = 0;
  float beta = 0;
  float* c = nullptr;
  std::size_t ldc = 0;
};

/// A product is run as several, `size` rows of k or of m each.
struct ProductPieces {
  bool along_k = false;
  std::size_t size = 0;
};

/// On AVX-512 cores OpenBLAS has kernels that need no packing, for products of at most 10^6
/// multiplications. A larger product that can be cut into such pieces runs 1.1 to 2 times as fast
/// in them (784-100-10 at batch 100: 1.2), as long as the pieces are not thin.
inline ProductPieces SmallPieces(const Product& product) {
  constexpr double kSmallProduct = 1e6;
  constexpr std::size_t kThinPiece = 48;
  const bool along_k = product.k >= product.m;
  const std::size_t whole = along_k ? product.k : product.m;
  const double slice =
      static_cast<double>(product.n) * static_cast<double>(along_k ? product.m : product.k);
  const double most = kSmallProduct / std::max(slice, 1.0);
  if (most < kThinPiece || most >= static_cast<double>(whole)) return {along_k, whole};
  const auto largest = static_cast<std::size_t>(most);
  const std::size_t pieces = (whole + largest - 1) / largest;
  return {along_k, (whole + pieces - 1) / pieces};
}

/// Calls `multiply` with each piece of the product: a piece of m is rows of c; pieces of k add up
/// in c. At least once.
template <typename Multiply>
void MultiplyInPieces(const Product& whole, const ProductPieces& pieces, const Multiply& multiply) {
  const std::size_t end = pieces.along_k ? whole.k : whole.m;
  const std::size_t a_step = whole.transpose_a == pieces.along_k ? whole.lda : 1;
  const std::size_t b_step = whole.transpose_b ? 1 : whole.ldb;
  std::size_t at = 0;
  do {
    Product piece = whole;
    const std::size_t size = std::min(pieces.size, end - at);
    piece.a += at * a_step;
    if (pieces.along_k) {
      piece.k = size;
      piece.b += at * b_step;
      if (at > 0) piece.beta = 1;
    } else {
      piece.m = size;
      piece.c += at * whole.ldc;
    }
    multiply(piece);
    at += size;
  } while (at < end);
}

}  // namespace passel
