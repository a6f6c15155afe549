// random.h - small random generators with the same output on every machine.
//
// The C++ standard fixes the engines but not the distributions, so a seed would mean something
// else under another library. These are fixed here: a seed always gives the same training run.

#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace passel {

__extension__ using Uint128 = unsigned __int128;

/// SplitMix64 finaliser (Steele, Lea, Flood 2014): a bijection that mixes all 64 bits.
constexpr std::uint64_t Mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A seed for the stream named by (seed, a, b): for example (job seed, worker, epoch).
constexpr std::uint64_t StreamSeed(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0) {
  return Mix64(Mix64(Mix64(seed) ^ a) ^ b);
}

/// xoshiro256** (Blackman, Vigna 2018). Not for secrets. Copyable, 32 bytes.
class Random {
 public:
  explicit Random(std::uint64_t seed) {
    for (auto& word : state_) word = seed = Mix64(seed);
  }

  std::uint64_t Next() {
    const std::uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

  /// Uniform on [0, n), without bias (Lemire 2019). REQUIRES: n > 0.
  std::uint64_t Below(std::uint64_t n) {
    for (;;) {
      const Uint128 product = static_cast<Uint128>(Next()) * n;
      const auto low = static_cast<std::uint64_t>(product);
      if (low >= n || low >= (0 - n) % n) return static_cast<std::uint64_t>(product >> 64);
    }
  }

  /// Uniform on [0, 1), 53 random bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  /// Standard normal (Box-Muller, the cosine half).
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform());
  }

  /// Standard normal, redrawn until |z| <= 2, as TensorFlow's truncated_normal.
  double TruncatedNormal() {
    for (;;) {
      const double z = Normal();
      if (std::abs(z) <= 2.0) return z;
    }
  }

 private:
  static constexpr std::uint64_t Rotate(std::uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
  }
  std::uint64_t state_[4];
};

}  // namespace passel
