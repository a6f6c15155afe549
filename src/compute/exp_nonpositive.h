// exp_nonpositive.h - exp() of what a softmax takes it of, the same bits on every processor.
//
// Numbers    Float32 operations in the order written: with contraction off (-ffp-contract=off,
//            nvcc -fmad=false) the CPU's tables and the GPU agree bit by bit. Within 1 ulp.

#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace passel {

/// exp(x) for x <= 0; 0 below ln(FLT_MIN) = -87.33654; NaN for NaN.
///
/// With n = round(x / ln 2) and r = x - n ln 2, |r| <= ln 2 / 2: exp(x) = 2^n (1 + r + r^2 q(r)), q
/// fitted for the least relative error (tests/unit/compute/fit_exp.py: 3.1e-9 before rounding).
/// ln 2 is split so that n * kLn2High is exact. Adding kRound leaves n in the low bits of a float.
PASSEL_HD float ExpNonPositive(float x) {
  constexpr float kLowest = -87.33654f;
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;
  constexpr float kRound = 0x1.8p+23f;
  constexpr std::uint32_t kRoundBits = 0x4b400000u;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float q = 0x1.6a23cep-10f;
  q = q * r + 0x1.123a20p-7f;
  q = q * r + 0x1.5558f2p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  const float mantissa = (q * (r * r) + r) + 1.f;
#if defined(__CUDA_ARCH__)
  const std::uint32_t exponent = __float_as_uint(shifted) - kRoundBits + 127u;
  const float power = __uint_as_float(exponent << 23);
#else
  const std::uint32_t exponent = __builtin_bit_cast(std::uint32_t, shifted) - kRoundBits + 127u;
  const float power = __builtin_bit_cast(float, exponent << 23);
#endif
  return x < kLowest ? 0.f : mantissa * power;
}

}  // namespace passel
