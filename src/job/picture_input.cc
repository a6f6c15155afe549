#include "job/picture_input.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
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

Result<PictureFile> ReadIdx(std::unique_ptr<FileSource> source, const std::string& path,
                            const PictureOptions& options) {
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

}  // namespace

Result<PictureFile> ReadPictures(const std::string& path, const PictureOptions& options) {
  constexpr std::array<std::uint8_t, 4> kPngStart = {0x89, 'P', 'N', 'G'};
  std::array<std::byte, 4> start{};
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<FileSource> sniff, FileSource::Open(path));
  std::size_t got = 0;
  while (got < start.size()) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t more, sniff->Read(std::span(start).subspan(got)));
    if (more == 0) break;
    got += more;
  }
  if (got == start.size() &&
      std::ranges::equal(std::as_bytes(std::span(kPngStart)), std::span(start))) {
    return ReadPng(path, options);
  }
  const bool gzip = got >= 2 && start[0] == std::byte{0x1f} && start[1] == std::byte{0x8b};
  const bool idx = got >= 2 && start[0] == std::byte{0} && start[1] == std::byte{0};
  if (!gzip && !idx) {
    return InvalidArgument(fmt::format(
        "{} is neither a PNG picture nor an IDX file, plain or gzip: convert it to PNG", path));
  }
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<FileSource> source, FileSource::Open(path));
  return ReadIdx(std::move(source), path, options);
}

}  // namespace passel::job
