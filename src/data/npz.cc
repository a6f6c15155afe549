#include "data/npz.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/blob_internal.h"
#include "data/download.h"

namespace passel {
namespace {

constexpr std::size_t kLabelChunk = 64 * 1024;  // bytes; a multiple of every width

constexpr std::uint64_t kKerasBytes = 11'490'434;
constexpr const char* kKerasSha256 =
    "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1";

// Where each of the four arrays is in the archive. Errors as in Open().
Result<std::array<std::size_t, 4>> FindArrays(const ZipArchive& archive) {
  std::array<std::size_t, 4> places{};
  std::array<int, 4> found{};
  for (std::size_t i = 0; i < archive.entries().size(); ++i) {
    for (std::size_t part = 0; part < 4; ++part) {
      if (archive.entries()[i].name != kNpzArrayNames[part]) continue;
      places[part] = i;
      ++found[part];
    }
  }
  std::string missing;
  for (std::size_t part = 0; part < 4; ++part) {
    if (found[part] > 1) {
      return InvalidArgument(
          fmt::format("{} holds {} {} times, and which one counts is anybody's guess: write it "
                      "again with numpy.savez",
                      archive.name(), kNpzArrayNames[part], found[part]));
    }
    if (found[part] == 0) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", kNpzArrayNames[part]);
    }
  }
  if (!missing.empty()) {
    return NotFound(fmt::format("{} lacks {}: it must hold {}, {}, {} and {}", archive.name(),
                                missing, kNpzArrayNames[0], kNpzArrayNames[1], kNpzArrayNames[2],
                                kNpzArrayNames[3]));
  }
  return places;
}

// Elements of an array; no overflow once CheckHeader() has passed it.
std::uint64_t Elements(const NpyHeader& header) {
  std::uint64_t elements = 1;
  for (const std::uint64_t size : header.shape) elements *= size;
  return elements;
}

Status CheckHeader(const NpyHeader& header, bool images, const std::string& name) {
  const std::vector<std::uint64_t>& shape = header.shape;
  const bool kind_fits = images ? header.kind == 'u' && header.width == 1
                                : (header.kind == 'u' || header.kind == 'i') && header.width <= 8 &&
                                      (header.width & (header.width - 1)) == 0;
  if (!kind_fits) {
    return InvalidArgument(
        fmt::format("{} has elements of type '{}', but {}", name, header.descr,
                    images ? "pixels are '|u1': store them as numpy.uint8 from 0 to 255"
                           : "labels are integers of at most 8 bytes: store them as numpy.uint8"));
  }
  const bool shape_fits = images ? shape.size() == 3 || shape.size() == 2 : shape.size() == 1;
  if (!shape_fits) {
    return InvalidArgument(
        fmt::format("{} has the shape {}, but {}: reshape it", name, NpyShapeText(shape),
                    images ? "images have (n, rows, cols) or (n, pixels)" : "labels have (n,)"));
  }
  if (header.fortran_order) {
    return InvalidArgument(
        fmt::format("{} is in Fortran order: store numpy.ascontiguousarray of it", name));
  }
  std::uint64_t bytes = header.width;
  for (const std::uint64_t size : shape) {
    if (size < 1 || size > 0xffff'ffff || size > kMaxIdxPayloadBytes / bytes) {
      return InvalidArgument(
          fmt::format("{} has the shape {}, and no size may be 0, nor all together more than {} "
                      "bytes: use another file",
                      name, NpyShapeText(shape), kMaxIdxPayloadBytes));
    }
    bytes *= size;
  }
  return {};
}

}  // namespace

std::string NpzReader::Name(std::size_t part) const {
  return fmt::format("{} in {}", kNpzArrayNames[part], archive_.name());
}

Status NpzReader::CutOff(std::size_t part, const NpyHeader& header, std::uint64_t got) const {
  return DataLoss(
      fmt::format("{} is cut off: its header announces {} bytes and it holds {}; replace it by an "
                  "intact copy",
                  Name(part), Elements(header) * header.width, got));
}

Result<std::unique_ptr<ByteSource>> NpzReader::OpenArray(std::size_t part, NpyHeader* header) {
  const std::string name = Name(part);
  PASSEL_ASSIGN_OR_RETURN(auto source, archive_.OpenMember(places_[part]));
  PASSEL_ASSIGN_OR_RETURN(*header, ReadNpyHeader(*source, name));
  PASSEL_RETURN_IF_ERROR(CheckHeader(*header, IsImages(part), name));
  const ZipEntry& entry = archive_.entries()[places_[part]];
  const std::uint64_t bytes = header->header_bytes + Elements(*header) * header->width;
  if (bytes != entry.size) {
    return DataLoss(fmt::format(
        "{} {}: its header announces {} bytes and it has {}; replace it by "
        "an intact copy",
        name, entry.size < bytes ? "is cut off" : "has trailing bytes", bytes, entry.size));
  }
  // Before anybody allocates what it announces.
  if (bytes / kMaxDeflateRatio > entry.compressed_size) {
    return DataLoss(
        fmt::format("{} is corrupt: its header announces {} bytes, but {} compressed bytes hold at "
                    "most {}; replace it by an intact copy",
                    name, bytes, entry.compressed_size, entry.compressed_size * kMaxDeflateRatio));
  }
  return source;
}

Result<NpzReader> NpzReader::Open(ZipArchive archive) {
  PASSEL_ASSIGN_OR_RETURN(const auto places, FindArrays(archive));
  NpzReader reader(std::move(archive), places);
  for (std::size_t part = 0; part < 4; ++part) {
    NpyHeader header;
    PASSEL_RETURN_IF_ERROR(reader.OpenArray(part, &header).status());
    reader.counts_[part] = static_cast<std::uint32_t>(header.shape[0]);
    if (IsImages(part)) PASSEL_RETURN_IF_ERROR(reader.TakeSize(part, header.shape));
  }
  for (const std::size_t part : {0, 2}) {
    PASSEL_RETURN_IF_ERROR(CompareCounts(reader.Name(part), reader.counts_[part],
                                         reader.Name(part + 1), reader.counts_[part + 1]));
  }
  return reader;
}

Status NpzReader::TakeSize(std::size_t part, const std::vector<std::uint64_t>& shape) {
  const std::uint64_t rows = shape.size() == 3 ? shape[1] : 0;
  const std::uint64_t cols = shape.size() == 3 ? shape[2] : 0;
  const std::uint64_t pixels = shape.size() == 3 ? rows * cols : shape[1];
  const bool sides_differ = rows != 0 && rows_ != 0 && rows != rows_;
  if (pixels_ != 0 && (pixels != pixels_ || sides_differ)) {
    return InvalidArgument(
        fmt::format("{} has the shape {}, and the images of {} are of another size: use arrays of "
                    "one set",
                    Name(part), NpyShapeText(shape), kNpzArrayNames[0]));
  }
  pixels_ = pixels;
  if (rows != 0) {
    rows_ = static_cast<std::uint32_t>(rows);
    cols_ = static_cast<std::uint32_t>(cols);
  }
  return {};
}

Status NpzReader::ReadLabels(ByteSource& source, const NpyHeader& header, std::size_t part,
                             std::span<std::byte> out) {
  const std::uint32_t width = header.width;
  const bool big = header.byte_order == '>';
  std::vector<std::byte> chunk(std::min<std::size_t>(kLabelChunk, out.size() * width));
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t count = std::min(out.size() - done, chunk.size() / width);
    const std::span<std::byte> wanted = std::span(chunk).first(count * width);
    PASSEL_ASSIGN_OR_RETURN(const std::size_t got, ReadUpTo(source, wanted));
    if (got < wanted.size()) return CutOff(part, header, done * width + got);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t value = 0;
      for (std::uint32_t b = 0; b < width; ++b) {
        const std::byte byte = chunk[i * width + (big ? b : width - 1 - b)];
        value = value << 8 | std::to_integer<std::uint64_t>(byte);
      }
      const bool negative = header.kind == 'i' && (value >> (8 * width - 1) & 1) != 0;
      if (negative || value > 255) {
        // Sign-extended to 64 bits.
        const auto shift = 64 - 8 * width;
        const std::string text =
            negative ? fmt::format("{}", static_cast<std::int64_t>(value << shift) >> shift)
                     : fmt::format("{}", value);
        return InvalidArgument(
            fmt::format("label number {} of {} is {}, but labels are integers from 0 to 255: use "
                        "another file",
                        done + i, Name(part), text));
      }
      out[done + i] = static_cast<std::byte>(value);
    }
    done += count;
  }
  return {};
}

Status NpzReader::ReadArray(std::size_t part, std::span<std::byte> out) {
  PASSEL_CHECK(part < 4 && out.size() == counts_[part] * (IsImages(part) ? pixels_ : 1),
               "the buffer must fit the array");
  NpyHeader header;
  PASSEL_ASSIGN_OR_RETURN(const auto source, OpenArray(part, &header));
  if (Elements(header) != out.size()) {
    return DataLoss(fmt::format("{} changed while it was read: start again", Name(part)));
  }
  if (IsImages(part)) {
    PASSEL_ASSIGN_OR_RETURN(const std::size_t got, ReadUpTo(*source, out));
    if (got < out.size()) return CutOff(part, header, got);
  } else {
    PASSEL_RETURN_IF_ERROR(ReadLabels(*source, header, part, out));
  }
  // One more byte: there must be none. This also takes the checksum in.
  std::byte extra;
  PASSEL_ASSIGN_OR_RETURN(const std::size_t more, source->Read(std::span(&extra, 1)));
  if (more > 0) {
    return DataLoss(
        fmt::format("{} has trailing bytes: it goes on after the {} bytes that its header "
                    "announces; replace it by an intact copy",
                    Name(part), Elements(header) * header.width));
  }
  return {};
}

Result<NpzReader> NpzReader::Open(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(ZipArchive archive, ZipArchive::Open(path));
  return Open(std::move(archive));
}

Result<NpzReader> NpzReader::OpenBytes(std::span<const std::byte> bytes, std::string name) {
  PASSEL_ASSIGN_OR_RETURN(ZipArchive archive, ZipArchive::OpenBytes(bytes, std::move(name)));
  return Open(std::move(archive));
}

Result<MeasuredData> OpenNpzFile(const std::vector<std::string>& paths, const DataOptions&) {
  PASSEL_ASSIGN_OR_RETURN(NpzReader opened, NpzReader::Open(paths[0]));
  const auto reader = std::make_shared<NpzReader>(std::move(opened));
  BlobShape shape{reader->train_count(), reader->test_count(), reader->rows(), reader->cols()};
  if (shape.rows == 0) SetSides(reader->pixels(), &shape);
  const auto read = [reader](const BlobWriter& to) -> Status {
    for (const BlobPart part : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
      PASSEL_RETURN_IF_ERROR(reader->ReadArray(part, to.part(part)));
    }
    return {};
  };
  return MeasuredData{shape, reader->Name(kTrainLabels), reader->Name(kTestLabels), read};
}

bool IsKerasMnist(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || info.st_size != static_cast<off_t>(kKerasBytes)) {
    return false;  // the sum of 11 MB is taken only where it may match
  }
  const auto bytes = ReadFile(path, kKerasBytes);
  return bytes.ok() && Sha256Hex(std::as_bytes(std::span(*bytes))) == kKerasSha256;
}

}  // namespace passel
