// fuzz_png.cc - libFuzzer target: no bytes may crash the reader of pictures, and whatever it reads
// makes an image for a model.
//
// Checksums hide what is behind them from a fuzzer, so the input is also tried with every chunk's
// checksum put right.

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "data/image_input.h"
#include "io/png.h"

namespace {

constexpr std::size_t kMostPixels = 1 << 20;  // so that one input is quick
constexpr std::size_t kRows = 28, kCols = 28;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "fuzz_png: %s\n", what.c_str());
  std::abort();
}

std::uint32_t BigEndian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

// From the header alone; 0: there is none.
std::uint64_t ClaimedPixels(std::span<const std::uint8_t> png) {
  if (png.size() < 24) return 0;
  return std::uint64_t{BigEndian(&png[16])} * BigEndian(&png[20]);
}

std::vector<std::uint8_t> WithRightChecksums(std::vector<std::uint8_t> png) {
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const std::size_t length = BigEndian(&png[at]);
    if (length > png.size() - at - 12) break;
    const auto sum =
        static_cast<std::uint32_t>(::crc32(0, &png[at + 4], static_cast<unsigned>(4 + length)));
    for (int i = 0; i < 4; ++i) {
      png[at + 8 + length + static_cast<std::size_t>(i)] =
          static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    }
    at += 12 + length;
  }
  return png;
}

void Check(const std::vector<std::uint8_t>& png) {
  if (ClaimedPixels(png) > kMostPixels && ClaimedPixels(png) <= passel::kMaxPngPixels) return;
  const auto picture = passel::DecodePng(png, "input");
  if (!picture.ok()) {
    if (picture.status().message().find("input") == std::string::npos) Fail("no name in the error");
    return;
  }
  if (picture->width == 0 || picture->height == 0 || picture->width > passel::kMaxPngSide ||
      picture->height > passel::kMaxPngSide ||
      picture->pixels.size() != 4 * picture->width * picture->height) {
    Fail("a picture outside the limits");
  }
  if (picture->width * picture->height > 4096) return;  // slow under sanitizers
  for (const bool invert : {false, true}) {
    const auto image = passel::MakeImageInput(picture->pixels, picture->width, picture->height,
                                              {kRows, kCols, invert});
    if (image.size() != kRows * kCols) Fail("an image of another size");
    (void)passel::RimIsLight(image, kRows, kCols);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> png(data, data + size);
  Check(png);
  Check(WithRightChecksums(std::move(png)));
  return 0;
}
