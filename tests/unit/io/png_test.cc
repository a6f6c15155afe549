// PNG files: every kind has the pixels that it says; what is hostile gets an error.

#include "io/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <iterator>
#include <string_view>

namespace passel {
namespace {

using ::testing::HasSubstr;

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
#include <png_kinds.inc>  // written by png_kinds.py, while this is built
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

// The bytes of a plain picture, to be damaged.
std::vector<std::uint8_t> Good() {
  for (const Kind& kind : kKinds) {
    if (std::string_view(kind.name) == "rgb 8") return FromHex(kind.png);
  }
  ADD_FAILURE() << "there is no plain picture";
  return {};
}

TEST(PngTest, EveryCutOffFileIsAnError) {
  const std::vector<std::uint8_t> png = Good();
  for (std::size_t size = 0; size < png.size() - 12; ++size) {  // the last chunk is empty
    const auto picture = DecodePng(std::span(png).first(size), "cut.png");
    ASSERT_FALSE(picture.ok()) << size;
    ASSERT_THAT(picture.status().message(), HasSubstr("cut.png"));
  }
}

TEST(PngTest, SizesAboveTheLimitsAreNamed) {
  for (const auto& [width, height] :
       {std::pair<std::uint32_t, std::uint32_t>{16'385, 1}, {1, 16'385}, {16'384, 4'097}}) {
    std::vector<std::uint8_t> png = Good();
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
      if (width == 1 && height == 1) continue;  // what is there is enough for that
      std::vector<std::uint8_t> png = Good();
      SetSize(&png, width, height);
      const auto picture = DecodePng(png, "hostile.png");
      ASSERT_FALSE(picture.ok()) << width << " x " << height;
      ASSERT_THAT(picture.status().message(), HasSubstr("hostile.png"));
    }
  }
}

}  // namespace
}  // namespace passel
