#include "data/dataset.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/idx.h"

namespace passel {
namespace {

constexpr char kBlobMagic[8] = {'P', 'A', 'S', 'S', 'E', 'L', 'D', 'S'};
constexpr std::uint32_t kBlobVersion = 1;

// Index of a part: also the order of kIdxFileNames.
enum Part { kTrainImages, kTrainLabels, kTestImages, kTestLabels, kParts };

// The first bytes of a blob, in this host's byte order.
struct BlobHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t num_classes;
  std::uint32_t train_count;
  std::uint32_t test_count;
  std::uint32_t rows;
  std::uint32_t cols;
  std::uint64_t total_bytes;     // from the header's first byte to the last label
  std::uint64_t offset[kParts];  // bytes from the header's first byte
};
static_assert(std::is_trivially_copyable_v<BlobHeader> && std::is_standard_layout_v<BlobHeader>);
static_assert(offsetof(BlobHeader, total_bytes) == 32 && offsetof(BlobHeader, offset) == 40 &&
              sizeof(BlobHeader) == 72 && sizeof(BlobHeader) <= kBlobAlign);

std::uint64_t AlignUp(std::uint64_t bytes) {
  return (bytes + kBlobAlign - 1) / kBlobAlign * kBlobAlign;
}

// Bytes of each part, which must not overflow: counts come from IdxShape or are checked before.
std::array<std::uint64_t, kParts> PartBytes(const BlobHeader& header) {
  const std::uint64_t pixels = std::uint64_t{header.rows} * header.cols;
  return {header.train_count * pixels, header.train_count, header.test_count * pixels,
          header.test_count};
}

// Sets offsets and total size from the counts.
void PlaceParts(BlobHeader* header) {
  const auto bytes = PartBytes(*header);
  std::uint64_t end = sizeof(BlobHeader);
  for (int part = 0; part < kParts; ++part) {
    header->offset[part] = AlignUp(end);
    end = header->offset[part] + bytes[part];
  }
  header->total_bytes = end;
}

struct OpenFiles {
  std::vector<IdxReader> readers;  // kParts of them
  BlobHeader header;               // all but num_classes
};

// Opens the four files and checks their headers against one another.
Result<OpenFiles> OpenIdxDirectory(const std::string& dir) {
  PASSEL_ASSIGN_OR_RETURN(const auto paths, FindIdxFiles(dir));
  OpenFiles files{};
  for (int part = 0; part < kParts; ++part) {
    PASSEL_ASSIGN_OR_RETURN(auto source, FileSource::Open(paths[part]));
    const bool images = part == kTrainImages || part == kTestImages;
    PASSEL_ASSIGN_OR_RETURN(
        IdxReader reader,
        IdxReader::Open(std::move(source), images ? IdxKind::kImages : IdxKind::kLabels,
                        paths[part]));
    files.readers.push_back(std::move(reader));
  }
  for (int part : {kTrainImages, kTestImages}) {
    const std::uint32_t images = files.readers[part].shape().count;
    const std::uint32_t labels = files.readers[part + 1].shape().count;
    if (images != labels) {
      return DataLoss(fmt::format("{} has {} images but {} has {} labels: use two files of one set",
                                  paths[part], images, paths[part + 1], labels));
    }
  }
  const IdxShape& train = files.readers[kTrainImages].shape();
  const IdxShape& test = files.readers[kTestImages].shape();
  if (train.rows != test.rows || train.cols != test.cols) {
    return InvalidArgument(fmt::format(
        "{} has images of {} x {} pixels but {} has {} x {}: use two files of one set",
        paths[kTrainImages], train.rows, train.cols, paths[kTestImages], test.rows, test.cols));
  }
  BlobHeader& header = files.header;
  std::memcpy(header.magic, kBlobMagic, sizeof(kBlobMagic));
  header.version = kBlobVersion;
  header.train_count = train.count;
  header.test_count = test.count;
  header.rows = train.rows;
  header.cols = train.cols;
  PlaceParts(&header);
  return files;
}

std::span<const std::uint8_t> AsBytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

std::uint8_t MaxLabel(std::span<const std::uint8_t> labels) {
  std::uint8_t max = 0;
  for (const std::uint8_t label : labels) max = std::max(max, label);
  return max;
}

bool IsFile(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Result<std::array<std::string, 4>> FindIdxFiles(const std::string& dir) {
  struct stat info;
  if (::stat(dir.c_str(), &info) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot use the data directory {}", dir));
  }
  if (!S_ISDIR(info.st_mode)) {
    return InvalidArgument(
        fmt::format("{} is a file: name the directory that holds the four IDX files", dir));
  }
  std::array<std::string, 4> paths;
  std::string missing;
  for (int part = 0; part < kParts; ++part) {
    paths[part] = fmt::format("{}{}{}", dir, dir.ends_with('/') ? "" : "/", kIdxFileNames[part]);
    if (IsFile(paths[part])) continue;
    paths[part] += ".gz";
    if (!IsFile(paths[part])) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", kIdxFileNames[part]);
    }
  }
  if (!missing.empty()) {
    return NotFound(fmt::format(
        "the data directory {} lacks {}: it must hold {}, {}, {} and {}, each plain or "
        "with .gz",
        dir, missing, kIdxFileNames[0], kIdxFileNames[1], kIdxFileNames[2], kIdxFileNames[3]));
  }
  return paths;
}

Result<std::size_t> DatasetBytes(const std::string& dir) {
  PASSEL_ASSIGN_OR_RETURN(const OpenFiles files, OpenIdxDirectory(dir));
  return static_cast<std::size_t>(files.header.total_bytes);
}

Status LoadIdxDirectoryInto(const std::string& dir, std::span<std::byte> blob) {
  // Whatever happens below, a blob that was valid before is not taken for the new one.
  std::fill_n(blob.begin(), std::min(blob.size(), sizeof(BlobHeader)), std::byte{0});
  PASSEL_ASSIGN_OR_RETURN(OpenFiles files, OpenIdxDirectory(dir));
  BlobHeader& header = files.header;
  if (blob.size() < header.total_bytes) {
    return FailedPrecondition(
        fmt::format("the data in {} needs {} bytes and the memory for it has {}: the files changed "
                    "after they were measured, start again",
                    dir, header.total_bytes, blob.size()));
  }
  const auto bytes = PartBytes(header);
  std::array<Status, kParts> status;
  const auto decode = [&](int part) {
    status[part] = files.readers[part].ReadPayload(blob.subspan(header.offset[part], bytes[part]));
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of this scope
    for (int part = kParts - 1; part > 0; --part) {
      try {
        threads.emplace_back(decode, part);
      } catch (const std::system_error&) {  // no thread to be had: slower, but the same result
        decode(part);
      }
    }
    decode(kTrainImages);  // the largest by far, on this thread
  }
  for (const Status& one : status) PASSEL_RETURN_IF_ERROR(one);

  const auto labels = [&](int part) {
    return AsBytes(blob.subspan(header.offset[part], bytes[part]));
  };
  header.num_classes = MaxLabel(labels(kTrainLabels)) + 1u;
  if (const unsigned max = MaxLabel(labels(kTestLabels)); max >= header.num_classes) {
    return DataLoss(
        fmt::format("{} holds the label {}, but the largest label of {} is {}: use two "
                    "files of one set",
                    files.readers[kTestLabels].name(), max, files.readers[kTrainLabels].name(),
                    header.num_classes - 1));
  }
  std::memcpy(blob.data(), &header, sizeof(header));
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

Result<OwnedDataset> OwnedDataset::Load(const std::string& dir) {
  PASSEL_ASSIGN_OR_RETURN(const std::size_t size, DatasetBytes(dir));
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (bytes == nullptr) {
    return ResourceExhausted(
        fmt::format("the data in {} needs {} bytes of memory: use a smaller set", dir, size));
  }
  const std::span<std::byte> blob(bytes.get(), size);
  PASSEL_RETURN_IF_ERROR(LoadIdxDirectoryInto(dir, blob));
  PASSEL_ASSIGN_OR_RETURN(const Dataset view, Dataset::View(blob));
  return OwnedDataset(std::move(bytes), view);
}

Result<DataSplit> SplitValidation(const Dataset& dataset, std::int64_t validation_size) {
  const ImageSet& train = dataset.train();
  if (validation_size < 0 || static_cast<std::uint64_t>(validation_size) > train.size()) {
    return InvalidArgument(fmt::format("Validation size should be between 0 and {}. Received: {}.",
                                       train.size(), validation_size));
  }
  const auto k = static_cast<std::size_t>(validation_size);
  return DataSplit{train.Slice(k, train.size() - k), train.Slice(0, k), dataset.test()};
}

}  // namespace passel
