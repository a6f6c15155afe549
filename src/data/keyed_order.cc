#include "data/keyed_order.h"

#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace passel {
namespace {

// Uniform on [0, n), but for 2^-24 of it.
std::uint64_t Drawn(std::uint64_t key, std::uint64_t from, std::uint64_t n) {
  return static_cast<std::uint64_t>(static_cast<Uint128>(Mix64(key ^ from)) * n >> 64);
}

std::uint64_t Turned(std::uint64_t half, std::uint64_t by, std::uint64_t n) {
  const std::uint64_t sum = half + by;
  return sum >= n ? sum - n : sum;
}

}  // namespace

KeyedOrder::KeyedOrder(std::uint64_t n, std::uint64_t key) : n_(n) {
  PASSEL_CHECK(n >= 1 && n <= kMost, "an order is of 1 to 2^40 things");
  rows_ = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (rows_ * rows_ < n) ++rows_;
  columns_ = (n - 1) / rows_ + 1;
  for (std::size_t i = 0; i < keys_.size(); ++i) keys_[i] = StreamSeed(key, i);
}

std::uint64_t KeyedOrder::At(std::uint64_t place) const {
  PASSEL_CHECK(place < n_, "the order has that place");
  do {
    std::uint64_t row = place / columns_, column = place % columns_;
    for (std::size_t i = 0; i < keys_.size(); i += 2) {
      row = Turned(row, Drawn(keys_[i], column, rows_), rows_);
      column = Turned(column, Drawn(keys_[i + 1], row, columns_), columns_);
    }
    place = row * columns_ + column;
  } while (place >= n_);
  return place;
}

}  // namespace passel
