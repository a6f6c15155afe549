// image_input.h - from a picture as people keep it to the grey pixels that a model takes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace passel {

struct ImageInputOptions {
  std::size_t rows = 0, cols = 0;  ///< of the result; not 0
  /// The picture is dark on light: MNIST is light on dark.
  bool invert = false;
};

/// Grey by the weights of Rec. 601 (0.299 red, 0.587 green, 0.114 blue); what is transparent is
/// background, that is 0 in the result; then each pixel of the result is the mean over the area
/// that it covers in the picture, rounded to the nearest (exact arithmetic, halves up); then
/// inverted if asked. A picture of the wanted size is not changed by the mean.
/// `rgba`: (height, width, 4). Result: (rows, cols).
/// REQUIRES: rgba.size() == 4 * width * height; no side is 0 or above 2^16.
std::vector<std::uint8_t> MakeImageInput(std::span<const std::uint8_t> rgba, std::size_t width,
                                         std::size_t height, const ImageInputOptions& options);

/// Whether the pixels on the rim of `image` (rows, cols) are lighter than half on average: then it
/// may be a picture that should have been inverted. REQUIRES: image.size() == rows * cols > 0.
bool RimIsLight(std::span<const std::uint8_t> image, std::size_t rows, std::size_t cols);

}  // namespace passel
