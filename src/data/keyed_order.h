// keyed_order.h - an order of n things that a key names, any place of which is found at once.
//
// Memory     None: a permutation is computed, not kept. A Feistel network over a rectangle of at
//            least n places (Black, Rogaway 2002), walked on where it leads behind the end.
// Not for secrets.

#pragma once

#include <array>
#include <cstdint>

namespace passel {

class KeyedOrder {
 public:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  /// REQUIRES: 1 <= n <= kMost.
  KeyedOrder(std::uint64_t n, std::uint64_t key);
  /// What is at that place, each of 0 to n - 1 at one. REQUIRES: place < n.
  std::uint64_t At(std::uint64_t place) const;

 private:
  static constexpr int kRounds = 4;  // of both halves
  std::uint64_t n_, rows_, columns_;
  std::array<std::uint64_t, 2 * kRounds> keys_;
};

}  // namespace passel
