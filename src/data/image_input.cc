#include "data/image_input.h"

#include <algorithm>

#include "base/check.h"

namespace passel {
namespace {

constexpr std::size_t kMaxSide = std::size_t{1} << 16;

std::vector<std::uint8_t> Grey(std::span<const std::uint8_t> rgba, std::uint32_t background) {
  std::vector<std::uint8_t> grey(rgba.size() / 4);
  for (std::size_t i = 0; i < grey.size(); ++i) {
    const std::uint8_t* const p = &rgba[4 * i];
    // 0.299, 0.587 and 0.114 in units of 2^-16, adding up to 2^16.
    const std::uint32_t value = (19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768u) >> 16;
    grey[i] = static_cast<std::uint8_t>((value * p[3] + background * (255u - p[3]) + 127u) / 255u);
  }
  return grey;
}

// Along one axis pixel i of `in` covers [i * out, (i + 1) * out), pixel k of `out` covers
// [k * in, (k + 1) * in): whole numbers, whatever the sizes.
struct Cover {
  std::size_t first, last;  // pixels of the picture
  std::size_t begin, end;   // of the pixel of the result
  std::size_t out;
  Cover(std::size_t k, std::size_t in, std::size_t out_size)
      : first(k * in / out_size),
        last(((k + 1) * in - 1) / out_size),
        begin(k * in),
        end((k + 1) * in),
        out(out_size) {}
  std::uint64_t Weight(std::size_t i) const {
    return std::min(end, (i + 1) * out) - std::max(begin, i * out);
  }
};

}  // namespace

std::vector<std::uint8_t> MakeImageInput(std::span<const std::uint8_t> rgba, std::size_t width,
                                         std::size_t height, const ImageInputOptions& options) {
  PASSEL_CHECK(width >= 1 && width <= kMaxSide && height >= 1 && height <= kMaxSide &&
                   options.rows >= 1 && options.rows <= kMaxSide && options.cols >= 1 &&
                   options.cols <= kMaxSide && rgba.size() == 4 * width * height,
               "the picture and the result have sizes, and the picture is whole");
  const std::vector<std::uint8_t> grey = Grey(rgba, options.invert ? 255 : 0);
  std::vector<std::uint8_t> result(options.rows * options.cols);
  const std::uint64_t area = std::uint64_t{width} * height;  // the sum of all weights of a pixel
  for (std::size_t r = 0; r < options.rows; ++r) {
    const Cover down(r, height, options.rows);
    for (std::size_t c = 0; c < options.cols; ++c) {
      const Cover across(c, width, options.cols);
      std::uint64_t sum = 0;
      for (std::size_t y = down.first; y <= down.last; ++y) {
        std::uint64_t row = 0;
        for (std::size_t x = across.first; x <= across.last; ++x) {
          row += across.Weight(x) * grey[y * width + x];
        }
        sum += down.Weight(y) * row;
      }
      const std::uint64_t mean = (2 * sum + area) / (2 * area);
      result[r * options.cols + c] = static_cast<std::uint8_t>(options.invert ? 255 - mean : mean);
    }
  }
  return result;
}

bool RimIsLight(std::span<const std::uint8_t> image, std::size_t rows, std::size_t cols) {
  PASSEL_CHECK(image.size() == rows * cols && !image.empty(), "the image has the size it says");
  std::uint64_t sum = 0, count = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      if (r > 0 && r + 1 < rows && c > 0 && c + 1 < cols) continue;
      sum += image[r * cols + c];
      ++count;
    }
  }
  return sum * 2 > count * 255;
}

}  // namespace passel
