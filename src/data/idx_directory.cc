// The four IDX files of a directory (idx.h).

#include <fmt/core.h>

#include <array>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "data/blob_internal.h"
#include "data/data_source.h"
#include "data/idx.h"

namespace passel {
namespace {

struct OpenFiles {
  std::vector<IdxReader> readers;  // kBlobParts of them
  BlobShape shape;
};

// Opens the four files and checks their headers against one another.
Result<OpenFiles> OpenAndCompare(const std::vector<std::string>& paths) {
  OpenFiles files{};
  for (int part = 0; part < kBlobParts; ++part) {
    PASSEL_ASSIGN_OR_RETURN(auto source, FileSource::Open(paths[part]));
    const IdxKind kind = IsImages(part) ? IdxKind::kImages : IdxKind::kLabels;
    PASSEL_ASSIGN_OR_RETURN(IdxReader reader,
                            IdxReader::Open(std::move(source), kind, paths[part]));
    files.readers.push_back(std::move(reader));
  }
  for (int part : {kTrainImages, kTestImages}) {
    PASSEL_RETURN_IF_ERROR(CompareCounts(paths[part], files.readers[part].shape().count,
                                         paths[part + 1], files.readers[part + 1].shape().count));
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

Status ReadAll(OpenFiles* files, const BlobWriter& to) {
  std::array<Status, kBlobParts> status;
  const auto decode = [&](int part) {
    status[part] = files->readers[part].ReadPayload(to.part(static_cast<BlobPart>(part)));
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
  return {};
}

}  // namespace

Result<MeasuredData> OpenIdxFiles(const std::vector<std::string>& paths,
                                  const DataOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const OpenFiles measured, OpenAndCompare(paths));
  const auto read = [paths, shape = measured.shape,
                     on_line = options.on_line](const BlobWriter& to) -> Status {
    for (const std::string& path : paths) {
      if (on_line) on_line(fmt::format("Extracting {}", path));
    }
    PASSEL_ASSIGN_OR_RETURN(OpenFiles files, OpenAndCompare(paths));
    if (files.shape != shape) {
      return FailedPrecondition(
          fmt::format("{} or its neighbours changed after they were measured: start again",
                      paths[kTrainImages]));
    }
    return ReadAll(&files, to);
  };
  return MeasuredData{measured.shape, paths[kTrainLabels], paths[kTestLabels], read};
}

}  // namespace passel
