#include "data/image_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace passel {
namespace {

// Opaque grey pixels.
std::vector<std::uint8_t> Rgba(const std::vector<std::uint8_t>& grey, std::uint8_t alpha = 255) {
  std::vector<std::uint8_t> rgba;
  for (const std::uint8_t g : grey) rgba.insert(rgba.end(), {g, g, g, alpha});
  return rgba;
}

std::vector<std::uint8_t> Noise(std::size_t bytes, std::uint32_t seed) {
  std::vector<std::uint8_t> noise(bytes);
  for (auto& b : noise) b = static_cast<std::uint8_t>((seed = seed * 1664525 + 1013904223) >> 24);
  return noise;
}

TEST(ImageInputTest, PictureOfTheRightSizeIsNotChanged) {
  std::vector<std::uint8_t> grey(256);
  for (std::size_t i = 0; i < 256; ++i) grey[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(MakeImageInput(Rgba(grey), 16, 16, {16, 16, false}), grey);
  EXPECT_EQ(MakeImageInput(Rgba(grey), 8, 32, {32, 8, false}), grey);
  std::ranges::reverse(grey);  // 255 - i
  std::vector<std::uint8_t> forward(grey.rbegin(), grey.rend());
  EXPECT_EQ(MakeImageInput(Rgba(forward), 16, 16, {16, 16, true}), grey);
}

TEST(ImageInputTest, ColoursAreWeighed) {
  const std::vector<std::uint8_t> rgba = {255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255};
  EXPECT_EQ(MakeImageInput(rgba, 3, 1, {1, 3, false}),
            (std::vector<std::uint8_t>{76, 150, 29}));  // 255 * 0.299, 0.587, 0.114
}

TEST(ImageInputTest, TransparentPixelsAreBackground) {
  EXPECT_EQ(MakeImageInput(Rgba({200, 200}, 0), 2, 1, {1, 2, false}),
            (std::vector<std::uint8_t>{0, 0}));
  EXPECT_EQ(MakeImageInput(Rgba({10, 10}, 0), 2, 1, {1, 2, true}),
            (std::vector<std::uint8_t>{0, 0}));
  EXPECT_EQ(MakeImageInput(Rgba({100}, 51), 1, 1, {1, 1, false}), (std::vector<std::uint8_t>{20}));
}

// Against the definition in double precision, over sizes that divide one another and that do not.
TEST(ImageInputTest, EveryPixelIsTheMeanOverItsArea) {
  std::uint32_t seed = 1;
  for (const std::size_t width : {1u, 3u, 28u, 29u, 56u, 100u}) {
    for (const std::size_t height : {1u, 5u, 28u, 61u}) {
      const std::vector<std::uint8_t> grey = Noise(width * height, ++seed);
      constexpr std::size_t kRows = 28, kCols = 14;
      const auto got = MakeImageInput(Rgba(grey), width, height, {kRows, kCols, false});
      for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t c = 0; c < kCols; ++c) {
          const auto overlap = [](std::size_t pixel, std::size_t k, std::size_t in,
                                  std::size_t out) {
            const double scale = static_cast<double>(in) / static_cast<double>(out);
            const auto p = static_cast<double>(pixel), q = static_cast<double>(k);
            return std::max(0.0, std::min(p + 1, (q + 1) * scale) - std::max(p, q * scale)) / scale;
          };
          double mean = 0;
          for (std::size_t y = 0; y < height; ++y) {
            for (std::size_t x = 0; x < width; ++x) {
              mean +=
                  overlap(y, r, height, kRows) * overlap(x, c, width, kCols) * grey[y * width + x];
            }
          }
          ASSERT_NEAR(got[r * kCols + c], mean, 0.5 + 1e-6) << width << " x " << height;
        }
      }
    }
  }
}

TEST(ImageInputTest, LightRimIsSeen) {
  std::vector<std::uint8_t> image(9, 0);
  EXPECT_FALSE(RimIsLight(image, 3, 3));
  image[4] = 255;
  EXPECT_FALSE(RimIsLight(image, 3, 3)) << "the middle is no rim";
  for (std::size_t i : {0u, 1u, 2u, 3u, 5u}) image[i] = 255;
  EXPECT_TRUE(RimIsLight(image, 3, 3));
  EXPECT_TRUE(RimIsLight(std::vector<std::uint8_t>{200}, 1, 1));
}

}  // namespace
}  // namespace passel
