// damage.h - what readers make of texts that were damaged on their way.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/random.h"
#include "base/status.h"

namespace passel::testing {

/// `text` with one to three bytes changed, some left out, or a part of it put in once more.
inline std::string Damaged(std::string text, Random& random) {
  for (std::uint64_t n = 1 + random.Below(3); n > 0; --n) {
    const std::size_t at = random.Below(text.size());
    switch (random.Below(3)) {
      case 0:
        text[at] = static_cast<char>(random.Below(256));
        break;
      case 1:
        text.erase(at, 1 + random.Below(5));
        break;
      default:
        text.insert(at, text.substr(random.Below(text.size()), random.Below(20)));
    }
  }
  return text;
}

/// Reads 20,000 damaged texts: each is read, or refused in a printable sentence of less than 600
/// bytes. Returns how many were refused, which is not all.
inline int RefusedOfDamaged(const std::string& text, std::uint64_t seed,
                            const std::function<Status(const std::string&)>& read) {
  constexpr int kTexts = 20'000;
  Random random(seed);
  int refused = 0;
  for (int i = 0; i < kTexts; ++i) {
    const std::string damaged = Damaged(text, random);
    const Status status = read(damaged);
    if (status.ok()) continue;
    ++refused;
    EXPECT_LT(status.message().size(), 600u);
    for (const char c : status.message()) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << damaged;
  }
  EXPECT_LT(refused, kTexts);
  return refused;
}

}  // namespace passel::testing
