// confusion_picture.h - a confusion matrix as a picture for people.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "train/confusion_matrix.h"

namespace passel {

/// Row-major, (height, width, 3), red, green, blue.
struct RgbPicture {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;
};

/// A row per label, a column per predicted class, both numbered; recall at the right, precision
/// below, in percent. Cells are shaded by the square root of their share of the label's examples
/// (errors are few: their cells would else be white), hits in blue, errors in red, and bear their
/// counts. With more than 32 classes cells are too small for numbers: only every eighth class is
/// numbered, and there are no shares.
/// `title` stands above; what the font (bitmap_font.h) does not have is left blank.
RgbPicture DrawConfusionMatrix(const ConfusionMatrix& matrix, const std::string& title);

}  // namespace passel
