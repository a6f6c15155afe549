#include "io/png.h"

#include <fmt/core.h>
#include <png.h>

#include <cstring>

namespace passel {
namespace {

// The most that deflate can expand: 258 bytes from 2 bits.
constexpr std::uint64_t kMaxDeflateRatio = 1032;

// libpng's simplified interface: no callbacks, no jumps, its message in the structure.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

}  // namespace

Result<RgbaPicture> DecodePng(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (bytes.size() < 8 || png_sig_cmp(bytes.data(), 0, 8) != 0) {
    return InvalidArgument(fmt::format(
        "{} is no PNG file: it does not begin like one; save the picture as PNG", name));
  }
  const auto corrupt = [&](const char* why) {
    return DataLoss(fmt::format("{} is a corrupt PNG file: {}; save the picture anew", name, why));
  };
  PngImage png;
  png_image& image = png.image;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    return corrupt(image.message);
  }
  const std::uint64_t width = image.width, height = image.height;
  if (width > kMaxPngSide || height > kMaxPngSide || width * height > kMaxPngPixels) {
    return InvalidArgument(
        fmt::format("{} has {} x {} pixels, at most {} each way and {} in all are read: scale it "
                    "down",
                    name, width, height, kMaxPngSide, kMaxPngPixels));
  }
  // At least one bit per pixel must come out of it.
  if (width * height / 8 > bytes.size() * kMaxDeflateRatio) {
    return corrupt(
        fmt::format("its {} bytes cannot hold its {} x {} pixels", bytes.size(), width, height)
            .c_str());
  }
  image.format = PNG_FORMAT_RGBA;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits are scaled, not taken for linear light
  RgbaPicture picture;
  picture.width = width;
  picture.height = height;
  picture.pixels.resize(width * height * 4);
  if (png_image_finish_read(&image, nullptr, picture.pixels.data(), 0, nullptr) == 0) {
    return corrupt(image.message);
  }
  return picture;
}

Result<std::vector<std::uint8_t>> EncodePng(std::span<const std::uint8_t> rgb, std::size_t width,
                                            std::size_t height) {
  PASSEL_CHECK(width >= 1 && width <= kMaxPngSide && height >= 1 && height <= kMaxPngSide &&
                   rgb.size() == width * height * 3,
               "the picture has the size it says");
  PngImage png;
  png_image& image = png.image;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::uint8_t> bytes(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, rgb.data(), 0, nullptr) == 0) {
    return Internal(fmt::format("cannot write a PNG picture: {}", image.message));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace passel
