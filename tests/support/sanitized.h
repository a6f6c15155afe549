// sanitized.h - how much a test does: less where a sanitizer makes everything 5 to 20 times slower,
// more in the slow suite.

#pragma once

#include <cstdlib>
#include <vector>

namespace passel {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PASSEL_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PASSEL_TEST_SANITIZED 1
#endif
#endif

#if defined(PASSEL_TEST_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Turns of a test that looks for what is rare: all in a plain build, a part under a sanitizer,
/// which is there for memory and races, not for the numbers.
constexpr int Turns(int all, int sanitized) { return kSanitized ? sanitized : all; }

/// Cases of a test that takes each: all in a plain build, `sanitized` alone under a sanitizer.
template <typename T>
std::vector<T> Cases(std::vector<T> all, std::vector<T> sanitized) {
  return kSanitized ? sanitized : all;
}

/// Whether this is a run of the slow suite (passel_test(... SLOW_TIMEOUT)), which repeats more.
inline bool ManyTurns() { return std::getenv("PASSEL_MANY_TURNS") != nullptr; }

}  // namespace passel
