// The four IDX files of a directory (dataset.h).

#include <fmt/core.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "data/blob_internal.h"
#include "data/dataset.h"
#include "data/idx.h"

namespace passel {
namespace {

struct OpenFiles {
  std::vector<IdxReader> readers;  // kBlobParts of them
  BlobShape shape;
};

// Opens the four files and checks their headers against one another.
Result<OpenFiles> OpenIdxDirectory(const std::string& dir) {
  PASSEL_ASSIGN_OR_RETURN(const auto paths, FindIdxFiles(dir));
  OpenFiles files{};
  for (int part = 0; part < kBlobParts; ++part) {
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
  files.shape = {train.count, test.count, train.rows, train.cols};
  return files;
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
  for (int part = 0; part < kBlobParts; ++part) {
    paths[part] = fmt::format("{}{}{}", dir, dir.ends_with('/') ? "" : "/", kIdxFileNames[part]);
    if (IsRegularFile(paths[part])) continue;
    paths[part] += ".gz";
    if (!IsRegularFile(paths[part])) {
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", kIdxFileNames[part]);
    }
  }
  if (!missing.empty()) {
    return NotFound(fmt::format(
        "the data directory {} lacks {}: it must hold {}, {}, {} and {}, each a file, plain or "
        "with .gz",
        dir, missing, kIdxFileNames[0], kIdxFileNames[1], kIdxFileNames[2], kIdxFileNames[3]));
  }
  return paths;
}

Result<std::size_t> DatasetBytes(const std::string& dir) {
  PASSEL_ASSIGN_OR_RETURN(const OpenFiles files, OpenIdxDirectory(dir));
  return static_cast<std::size_t>(BlobBytes(files.shape));
}

Status LoadIdxDirectoryInto(const std::string& dir, std::span<std::byte> blob) {
  InvalidateBlob(blob);
  PASSEL_ASSIGN_OR_RETURN(OpenFiles files, OpenIdxDirectory(dir));
  PASSEL_ASSIGN_OR_RETURN(BlobWriter writer, BlobWriter::Create(blob, files.shape, dir));
  std::array<Status, kBlobParts> status;
  const auto decode = [&](int part) {
    status[part] = files.readers[part].ReadPayload(writer.part(static_cast<BlobPart>(part)));
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of this scope
    for (int part = kBlobParts - 1; part > 0; --part) {
      try {
        threads.emplace_back(decode, part);
      } catch (const std::system_error&) {  // no thread to be had: slower, but the same result
        decode(part);
      }
    }
    decode(kTrainImages);  // the largest by far, on this thread
  }
  for (const Status& one : status) PASSEL_RETURN_IF_ERROR(one);
  return writer.Finish(files.readers[kTrainLabels].name(), files.readers[kTestLabels].name());
}

}  // namespace passel
