// test_seed.h - what a random test begins with.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"

namespace passel::testing {

/// PASSEL_TEST_SEED, or the clock. Printed, to be given back.
inline std::uint64_t TestSeed() {
  const char* const text = std::getenv("PASSEL_TEST_SEED");
  const std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10)
                                             : static_cast<std::uint64_t>(MonotonicNs());
  std::printf("PASSEL_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace passel::testing
