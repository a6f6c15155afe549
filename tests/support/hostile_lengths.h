// hostile_lengths.h - lengths that break who believes them, and a process that has no memory for
// what they ask.

#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "support/sanitized.h"

namespace passel::testing {

/// Around 0, the largest that is legal, and where 32 and 64 bits end, with a sign or without.
inline std::array<std::uint64_t, 9> HostileLengths(std::uint64_t max) {
  return {0,
          1,
          max - 1,
          max,
          max + 1,
          (std::uint64_t{1} << 31) - 1,
          (std::uint64_t{1} << 32) - 1,
          std::uint64_t{1} << 63,
          ~std::uint64_t{0}};
}

/// `run` is true, also in a process with 256 MiB of address space (a sanitizer needs more).
template <typename Run>
void ExpectTrueWithLittleMemory(const Run& run) {
  if (kSanitized) {
    EXPECT_TRUE(run());
    return;
  }
  const auto with_little_memory = [&run] {
    const rlimit limit{256 << 20, 256 << 20};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(2);
    ::_exit(run() ? 0 : 1);
  };
  EXPECT_EXIT(with_little_memory(), ::testing::ExitedWithCode(0), "");
}

}  // namespace passel::testing
