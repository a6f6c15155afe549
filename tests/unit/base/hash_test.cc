#include "base/hash.h"

#include <gtest/gtest.h>

namespace passel {
namespace {

std::uint64_t OfBytes(std::string_view text) {
  Fnv1a hash;
  for (const char c : text) hash.AddByte(static_cast<std::uint8_t>(c));
  return hash.value();
}

TEST(Fnv1aTest, GivesThePublishedValues) {
  EXPECT_EQ(OfBytes(""), 0xcbf29ce484222325u);
  EXPECT_EQ(OfBytes("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(OfBytes("foobar"), 0x85944171f73967e8u);
}

TEST(Fnv1aTest, NumbersAreEightBytesAndTextsCarryTheirLength) {
  Fnv1a number;
  number.AddNumber(0x0807060504030201);
  EXPECT_EQ(number.value(), OfBytes("\x01\x02\x03\x04\x05\x06\x07\x08"));
  Fnv1a text;
  text.AddText("ab");
  EXPECT_EQ(text.value(), OfBytes(std::string_view("\x02\0\0\0\0\0\0\0ab", 10)));
  Fnv1a one;
  one.AddText("ab");
  one.AddText("c");
  Fnv1a other;
  other.AddText("a");
  other.AddText("bc");
  EXPECT_NE(one.value(), other.value());
}

}  // namespace
}  // namespace passel
