// PNG files: every kind has the pixels that it says; what is written can be read back; what is
// hostile gets an error.

#include "io/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <iterator>
#include <string_view>

namespace passel {
namespace {

using ::testing::HasSubstr;

std::vector<std::uint8_t> Noise(std::size_t bytes) {
  std::vector<std::uint8_t> noise(bytes);
  std::uint32_t x = 1;
  for (auto& b : noise) b = static_cast<std::uint8_t>((x = x * 1664525 + 1013904223) >> 24);
  return noise;
}

// The header of a PNG, with the right checksum.
void SetSize(std::vector<std::uint8_t>* png, std::uint32_t width, std::uint32_t height) {
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) {
      (*png)[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
    }
  };
  put(16, width);
  put(20, height);
  put(29, static_cast<std::uint32_t>(::crc32(0, png->data() + 12, 17)));
}

struct Kind {
  const char* name;
  const char* png;   // hexadecimal
  const char* rgba;  // likewise, (6, 9, 4)
};
constexpr Kind kKinds[] = {
#include "tests/unit/io/png_kinds.inc"
};

std::vector<std::uint8_t> FromHex(std::string_view hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(
        static_cast<std::uint8_t>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

TEST(PngTest, EveryKindHasThePixelsThatItSays) {
  EXPECT_EQ(std::size(kKinds), 53u);
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const auto picture = DecodePng(FromHex(kind.png), "it");
    ASSERT_TRUE(picture.ok()) << picture.status().message();
    EXPECT_EQ(picture->width, 9u);
    EXPECT_EQ(picture->height, 6u);
    EXPECT_EQ(picture->pixels, FromHex(kind.rgba));
  }
}

TEST(PngTest, WhatIsWrittenIsReadBack) {
  for (const auto& [width, height] : {std::pair<std::size_t, std::size_t>{1, 1}, {7, 5}, {64, 3}}) {
    const std::vector<std::uint8_t> rgb = Noise(width * height * 3);
    const auto png = EncodePng(rgb, width, height);
    ASSERT_TRUE(png.ok()) << png.status().message();
    const auto picture = DecodePng(*png, "it");
    ASSERT_TRUE(picture.ok()) << picture.status().message();
    ASSERT_EQ(picture->width, width);
    ASSERT_EQ(picture->height, height);
    for (std::size_t i = 0; i < width * height; ++i) {
      ASSERT_EQ(std::memcmp(&picture->pixels[4 * i], &rgb[3 * i], 3), 0);
      ASSERT_EQ(picture->pixels[4 * i + 3], 255);
    }
  }
}

TEST(PngTest, EveryCutOffFileIsAnError) {
  const auto png = EncodePng(Noise(10 * 10 * 3), 10, 10);
  for (std::size_t size = 0; size < png->size() - 12; ++size) {  // the last chunk is empty
    const auto picture = DecodePng(std::span(*png).first(size), "cut.png");
    ASSERT_FALSE(picture.ok()) << size;
    ASSERT_THAT(picture.status().message(), HasSubstr("cut.png"));
  }
}

TEST(PngTest, SizesAboveTheLimitsAreNamed) {
  for (const auto& [width, height] :
       {std::pair<std::uint32_t, std::uint32_t>{16'385, 1}, {1, 16'385}, {16'384, 4'097}}) {
    auto png = *EncodePng(Noise(12), 2, 2);
    SetSize(&png, width, height);
    const auto picture = DecodePng(png, "big.png");
    ASSERT_EQ(picture.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(picture.status().message(), HasSubstr("16384 each way"));
  }
}

// Every size that a header can say, from a file of a few bytes: never memory for it.
TEST(PngTest, HostileSizesAreErrorsBeforeMemoryIsTaken) {
  const std::uint32_t sizes[] = {
      0, 1, 16'383, 16'384, 16'385, 1u << 30, (1u << 31) - 1, 1u << 31, 0xffff'fffe, 0xffff'ffff};
  for (const std::uint32_t width : sizes) {
    for (const std::uint32_t height : sizes) {
      if (width == 1 && height == 1) continue;
      auto png = *EncodePng(Noise(3), 1, 1);
      SetSize(&png, width, height);
      const auto picture = DecodePng(png, "hostile.png");
      ASSERT_FALSE(picture.ok()) << width << " x " << height;
      ASSERT_THAT(picture.status().message(), HasSubstr("hostile.png"));
    }
  }
}

}  // namespace
}  // namespace passel
