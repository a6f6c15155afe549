// update_test_util.h - what the tests of optim/update_kernels.h share.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace passel {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();
// Lengths around every vector width and its unrollings, in floats.
inline constexpr std::size_t kLengths[] = {0,   1,   2,   3,   7,   8,    9,   15,  16,
                                           17,  31,  32,  33,  63,  64,   65,  127, 128,
                                           129, 191, 192, 193, 320, 1000, 1023};

inline bool SameBits(const float* a, const float* b, std::size_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0;
}

// Numbers of every size and sign, some 0, some subnormal.
inline std::vector<float> VariedNumbers(std::uint64_t seed, std::size_t n) {
  Random random(seed);
  std::vector<float> result(n);
  for (float& x : result) {
    const std::uint64_t kind = random.Below(16);
    const int exponent = static_cast<int>(random.Below(60)) - 50;
    x = std::ldexp(static_cast<float>(random.Uniform() - 0.5), exponent);
    if (kind == 0) x = 0;
    if (kind == 1) x = -0.0F;
    if (kind == 2) x = static_cast<float>(random.Below(1000)) * kSubnormal;
    if (kind > 8) x = static_cast<float>(random.Normal());
  }
  return result;
}

}  // namespace passel
