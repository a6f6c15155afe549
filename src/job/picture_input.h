// picture_input.h - the images that a user wants classified: PNG pictures and IDX files.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace passel::job {

struct PictureOptions {
  std::size_t inputs = 0;   ///< pixels that the model takes
  bool invert = false;      ///< dark on light
  std::uint64_t limit = 0;  ///< of an IDX file: the first N images; 0: all
};

/// Images of one file, as the model takes them.
struct PictureFile {
  std::string path;
  bool many = false;  ///< an IDX file, whose images have numbers
  std::size_t count = 0;
  std::vector<std::uint8_t> pixels;  ///< (count, inputs)
  std::string note;                  ///< one sentence when a picture was scaled; else empty
};

/// PNG or IDX, plain or gzip, told by content. An IDX image must have exactly `inputs` pixels. So
/// may a PNG; other square ones are averaged to the square of so many pixels, where that is one.
/// Errors: kNotFound, kInvalidArgument, kDataLoss, kResourceExhausted, naming the file.
Result<PictureFile> ReadPictures(const std::string& path, const PictureOptions& options);

}  // namespace passel::job
