#include "data/dataset.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "data/blob_internal.h"

namespace passel {
namespace {

constexpr char kBlobMagic[8] = {'P', 'A', 'S', 'S', 'E', 'L', 'D', 'S'};
constexpr std::uint32_t kBlobVersion = 1;

static_assert(std::is_trivially_copyable_v<BlobHeader> && std::is_standard_layout_v<BlobHeader>);
static_assert(offsetof(BlobHeader, total_bytes) == 32 && offsetof(BlobHeader, offset) == 40 &&
              sizeof(BlobHeader) == 72 && sizeof(BlobHeader) <= kBlobAlign);

std::uint64_t AlignUp(std::uint64_t bytes) {
  return (bytes + kBlobAlign - 1) / kBlobAlign * kBlobAlign;
}

// Bytes of each part, which must not overflow: counts come from a BlobShape or are checked before.
std::array<std::uint64_t, kBlobParts> PartBytes(const BlobHeader& header) {
  const std::uint64_t pixels = std::uint64_t{header.rows} * header.cols;
  return {header.train_count * pixels, header.train_count, header.test_count * pixels,
          header.test_count};
}

// Sets offsets and total size from the counts.
void PlaceParts(BlobHeader* header) {
  const auto bytes = PartBytes(*header);
  std::uint64_t end = sizeof(BlobHeader);
  for (int part = 0; part < kBlobParts; ++part) {
    header->offset[part] = AlignUp(end);
    end = header->offset[part] + bytes[part];
  }
  header->total_bytes = end;
}

// All but num_classes.
BlobHeader MakeHeader(const BlobShape& shape) {
  BlobHeader header{};
  std::memcpy(header.magic, kBlobMagic, sizeof(kBlobMagic));
  header.version = kBlobVersion;
  header.train_count = shape.train_count;
  header.test_count = shape.test_count;
  header.rows = shape.rows;
  header.cols = shape.cols;
  PlaceParts(&header);
  return header;
}

std::span<const std::uint8_t> AsBytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

std::uint8_t MaxLabel(std::span<const std::uint8_t> labels) {
  std::uint8_t max = 0;
  for (const std::uint8_t label : labels) max = std::max(max, label);
  return max;
}

}  // namespace

std::uint32_t Checksum(const ImageSet& set) {
  uLong crc = 0;
  for (const auto& bytes : {set.images, set.labels}) {
    crc = ::crc32_z(crc, bytes.data(), bytes.size());
  }
  return static_cast<std::uint32_t>(crc);
}

void SetSides(std::uint64_t pixels, BlobShape* shape) {
  const auto side = static_cast<std::uint64_t>(std::llround(std::sqrt(pixels)));
  shape->rows = side * side == pixels ? static_cast<std::uint32_t>(side) : 1;
  shape->cols = static_cast<std::uint32_t>(pixels / shape->rows);
}

std::uint64_t BlobBytes(const BlobShape& shape) { return MakeHeader(shape).total_bytes; }

Status CompareCounts(const std::string& images_name, std::uint64_t images,
                     const std::string& labels_name, std::uint64_t labels) {
  if (images == labels) return {};
  return DataLoss(fmt::format("{} has {} images but {} has {} labels: use those of one set",
                              images_name, images, labels_name, labels));
}

Result<BlobWriter> BlobWriter::Create(std::span<std::byte> blob, const BlobShape& shape,
                                      const std::string& source) {
  std::fill_n(blob.begin(), std::min(blob.size(), sizeof(BlobHeader)), std::byte{0});
  const BlobHeader header = MakeHeader(shape);
  if (blob.size() < header.total_bytes) {
    return FailedPrecondition(
        fmt::format("the data in {} needs {} bytes and the memory for it has {}: start again",
                    source, header.total_bytes, blob.size()));
  }
  return BlobWriter(blob, header);
}

std::span<std::byte> BlobWriter::part(BlobPart part) const {
  return blob_.subspan(header_.offset[part], PartBytes(header_)[part]);
}

Status BlobWriter::Finish(const std::string& train_labels, const std::string& test_labels,
                          std::uint32_t min_classes) {
  header_.num_classes = std::max(MaxLabel(AsBytes(part(kTrainLabels))) + 1u, min_classes);
  if (const unsigned max = MaxLabel(AsBytes(part(kTestLabels))); max >= header_.num_classes) {
    return DataLoss(
        fmt::format("{} holds the label {}, but the largest label of {} is {}: use two "
                    "files of one set",
                    test_labels, max, train_labels, header_.num_classes - 1));
  }
  std::memcpy(blob_.data(), &header_, sizeof(header_));
  return {};
}

Result<Dataset> Dataset::View(std::span<const std::byte> blob) {
  BlobHeader header;
  if (blob.size() < sizeof(header)) {
    return FailedPrecondition(
        fmt::format("a data blob has at least {} bytes and this one {}: load "
                    "the data again",
                    sizeof(header), blob.size()));
  }
  std::memcpy(&header, blob.data(), sizeof(header));  // a blob need not be aligned
  if (std::memcmp(header.magic, kBlobMagic, sizeof(kBlobMagic)) != 0) {
    return FailedPrecondition(
        "these bytes are no data blob, or its loading did not finish: load "
        "the data again");
  }
  if (header.version != kBlobVersion) {
    return FailedPrecondition(
        fmt::format("the data blob has version {} and this program reads {}: use one build of "
                    "passel for all tasks",
                    header.version, kBlobVersion));
  }
  const auto corrupt = [](const char* what, std::uint64_t value, std::uint64_t limit) {
    return DataLoss(
        fmt::format("the data blob is corrupt ({} is {}, allowed are 1 to {}): load the "
                    "data again",
                    what, value, limit));
  };
  // Bounded one by one, so that no product below can overflow.
  const std::uint64_t size = std::min<std::uint64_t>(blob.size(), header.total_bytes);
  if (header.total_bytes > blob.size() || header.total_bytes < sizeof(header)) {
    return corrupt("total_bytes", header.total_bytes, blob.size());
  }
  if (header.num_classes < 1 || header.num_classes > 256) {
    return corrupt("num_classes", header.num_classes, 256);
  }
  const std::pair<const char*, std::uint32_t> counts[] = {{"train_count", header.train_count},
                                                          {"test_count", header.test_count},
                                                          {"rows", header.rows},
                                                          {"cols", header.cols}};
  for (const auto& [what, value] : counts) {
    if (value < 1 || value > size) return corrupt(what, value, size);
  }
  const std::uint64_t pixels = std::uint64_t{header.rows} * header.cols;
  if (pixels > size) return corrupt("rows * cols", pixels, size);
  for (const std::uint64_t count : {header.train_count, header.test_count}) {
    if (pixels > size / count) return corrupt("rows * cols", pixels, size / count);
  }
  // The only placement that a loader of this version writes; so parts cannot overlap either.
  BlobHeader placed = header;
  PlaceParts(&placed);
  if (std::memcmp(&placed, &header, sizeof(header)) != 0) {
    return DataLoss(
        "the data blob is corrupt (its parts are not where their sizes put them): load "
        "the data again");
  }

  Dataset result;
  const auto bytes = PartBytes(header);
  const auto part = [&](int i) { return AsBytes(blob.subspan(header.offset[i], bytes[i])); };
  result.train_ = {part(kTrainImages), part(kTrainLabels), pixels};
  result.test_ = {part(kTestImages), part(kTestLabels), pixels};
  result.rows_ = header.rows;
  result.cols_ = header.cols;
  result.num_classes_ = header.num_classes;
  // Labels become indices: none may lead outside, whoever wrote this blob.
  for (const ImageSet* set : {&result.train_, &result.test_}) {
    if (const std::uint64_t max = MaxLabel(set->labels); max >= header.num_classes) {
      return DataLoss(
          fmt::format("the data blob is corrupt (label {} of {} classes): load the data "
                      "again",
                      max, header.num_classes));
    }
  }
  return result;
}

Result<DataSplit> SplitValidation(const Dataset& dataset, std::int64_t validation_size,
                                  std::uint64_t train_examples) {
  ImageSet train = dataset.train();
  if (train_examples != 0 && train_examples < train.size()) {
    train = train.Slice(0, static_cast<std::size_t>(train_examples));
  }
  if (validation_size < 0 || static_cast<std::uint64_t>(validation_size) > train.size()) {
    return InvalidArgument(fmt::format("Validation size should be between 0 and {}. Received: {}.",
                                       train.size(), validation_size));
  }
  const auto k = static_cast<std::size_t>(validation_size);
  return DataSplit{train.Slice(k, train.size() - k), train.Slice(0, k), dataset.test()};
}

}  // namespace passel
