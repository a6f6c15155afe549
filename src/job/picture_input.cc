#include "job/picture_input.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/memory_file.h"
#include "data/idx.h"
#include "data/image_input.h"
#include "io/png.h"

namespace passel::job {
namespace {

// The side of the square that the model takes; 0 if its pixels make none.
std::size_t SquareSide(std::size_t inputs) {
  const auto side = static_cast<std::size_t>(std::llround(std::sqrt(static_cast<double>(inputs))));
  return side * side == inputs ? side : 0;
}

Result<PictureFile> ReadPng(const std::string& path, const PictureOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::uint8_t> bytes, ReadFile(path, kMaxPngBytes));
  PASSEL_ASSIGN_OR_RETURN(const RgbaPicture picture, DecodePng(bytes, path));
  ImageInputOptions to{picture.height, picture.width, options.invert};
  PictureFile file;
  if (picture.width * picture.height != options.inputs) {
    const std::size_t side = SquareSide(options.inputs);
    if (side == 0) {
      return InvalidArgument(fmt::format("{} has {} x {} pixels, but the model takes {}: scale it",
                                         path, picture.width, picture.height, options.inputs));
    }
    if (picture.width != picture.height) {
      return InvalidArgument(
          fmt::format("{} has {} x {} pixels, but the model takes {} x {}: cut a square out of it",
                      path, picture.width, picture.height, side, side));
    }
    to.rows = to.cols = side;
    file.note = fmt::format("{} has {} x {} pixels: averaged to {} x {}", path, picture.width,
                            picture.height, side, side);
  }
  file.path = path;
  file.count = 1;
  file.pixels = MakeImageInput(picture.pixels, picture.width, picture.height, to);
  if (RimIsLight(file.pixels, to.rows, to.cols)) {
    LogWarning("{} is light at its rim{}, but MNIST is light on dark: {} --invert?", path,
               options.invert ? " when inverted" : "", options.invert ? "omit" : "give");
  }
  return file;
}

Result<PictureFile> ReadIdx(const std::string& path, const PictureOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<FileSource> source, FileSource::Open(path));
  PASSEL_ASSIGN_OR_RETURN(IdxReader reader,
                          IdxReader::Open(std::move(source), IdxKind::kImages, path));
  const IdxShape& shape = reader.shape();
  const std::uint64_t pixels = std::uint64_t{shape.rows} * shape.cols;
  if (pixels != options.inputs) {
    return InvalidArgument(
        fmt::format("the images in {} have {} x {} = {} pixels, but the model takes {}: use its "
                    "own data",
                    path, shape.rows, shape.cols, pixels, options.inputs));
  }
  PASSEL_ASSIGN_OR_RETURN(const MemoryBudget budget, ReadMemoryBudget());
  if (shape.PayloadBytes() > budget.available_bytes) {
    return ResourceExhausted(
        fmt::format("the images in {} need {} bytes, {} has {} bytes free: use a smaller file",
                    path, shape.PayloadBytes(), budget.limit, budget.available_bytes));
  }
  PictureFile file;
  file.path = path;
  file.many = true;
  file.count = shape.count;
  file.pixels.resize(shape.PayloadBytes());
  PASSEL_RETURN_IF_ERROR(reader.ReadPayload(std::as_writable_bytes(std::span(file.pixels))));
  if (options.limit > 0 && options.limit < file.count) {
    file.count = options.limit;
    file.pixels.resize(file.count * options.inputs);
  }
  if (options.invert) {
    for (std::uint8_t& pixel : file.pixels) pixel = static_cast<std::uint8_t>(255 - pixel);
  }
  return file;
}

// What a picture file may be, told by its first bytes.
struct PictureFormat {
  std::string_view start;
  std::string_view words;  // for the sentence about a file that is none; "": those before
  Result<PictureFile> (*read)(const std::string& path, const PictureOptions& options);
};

constexpr PictureFormat kPictureFormats[] = {
    {"\x89PNG", "a PNG picture", ReadPng},
    {std::string_view("\0\0", 2), "an IDX file, plain or gzip", ReadIdx},
    {"\x1f\x8b", "", ReadIdx},
};

}  // namespace

Result<PictureFile> ReadPictures(const std::string& path, const PictureOptions& options) {
  std::array<char, 8> start{};
  PASSEL_ASSIGN_OR_RETURN(const std::unique_ptr<FileSource> sniff, FileSource::Open(path));
  PASSEL_ASSIGN_OR_RETURN(const std::size_t got,
                          ReadUpTo(*sniff, std::as_writable_bytes(std::span(start))));
  const std::string_view text(start.data(), got);
  std::vector<std::string_view> words;
  for (const PictureFormat& format : kPictureFormats) {
    if (text.starts_with(format.start)) return format.read(path, options);
    if (!format.words.empty()) words.push_back(format.words);
  }
  return InvalidArgument(
      fmt::format("{} is neither {}: convert it to PNG", path, fmt::join(words, " nor ")));
}

}  // namespace passel::job
