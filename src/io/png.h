// png.h - pictures in memory from PNG files, by libpng.
//
// Files are not trusted: a header is believed only as far as the bytes behind it can bear it out,
// and no picture is larger than kMaxPngSide pixels each way or kMaxPngPixels in all.
//
// Thread safety: free functions without state.
// Errors: kDataLoss for a file that is cut off or corrupt; kInvalidArgument for bytes that are no
// PNG, or a picture above the limits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace passel {

inline constexpr std::size_t kMaxPngSide = 16'384;                   ///< pixels
inline constexpr std::size_t kMaxPngPixels = std::size_t{1} << 26;   ///< 256 MiB when decoded
inline constexpr std::size_t kMaxPngBytes = std::size_t{256} << 20;  ///< of a file

/// 8 bits per channel, row-major, without padding.
struct RgbaPicture {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;  ///< (height, width, 4): red, green, blue, alpha (255: opaque)
};

/// Any kind of PNG: grey or colour, palette, 1 to 16 bits, interlaced, with or without alpha.
/// `name` is put into every error.
Result<RgbaPicture> DecodePng(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace passel
