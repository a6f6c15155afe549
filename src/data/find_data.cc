// Which files a path leads to (data_source.h).

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "data/data_source.h"
#include "data/idx.h"
#include "data/npy.h"

namespace passel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNpzName = "mnist.npz";
constexpr std::string_view kCsvNames[2] = {"mnist_train.csv", "mnist_test.csv"};
constexpr std::size_t kMostNamed = 4;  // files in a message

std::string In(const std::string& dir, std::string_view name) {
  return (fs::path(dir) / name).string();
}

// What else in `dir` may be meant: "a.npz, b.csv".
Result<std::string> OtherNames(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path name = entry->path().filename();
    if (name.extension() == ".npz" || name.extension() == ".csv") names.push_back(name.string());
  }
  if (error) return ErrnoStatus(error.value(), fmt::format("cannot list the directory {}", dir));
  std::sort(names.begin(), names.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kMostNamed ? text + ", ..." : text;
}

Result<DataFiles> FindInDirectory(const std::string& dir) {
  const auto idx = FindIdxFiles(dir);
  if (idx.ok()) return DataFiles{DataFormat::kIdx, {idx->begin(), idx->end()}};
  const std::string npz = In(dir, kNpzName);
  const std::string csv[2] = {In(dir, kCsvNames[0]), In(dir, kCsvNames[1])};
  const bool has_npz = IsRegularFile(npz);
  const bool has_csv[2] = {IsRegularFile(csv[0]), IsRegularFile(csv[1])};
  if (has_npz && (has_csv[0] || has_csv[1])) {
    return InvalidArgument(
        fmt::format("the data directory {} holds {} and {}: name the npz file itself, or keep one "
                    "of the two sets there",
                    dir, kNpzName, kCsvNames[has_csv[0] ? 0 : 1]));
  }
  if (has_npz) return DataFiles{DataFormat::kNpz, {npz}};
  if (has_csv[0] && has_csv[1]) return DataFiles{DataFormat::kCsv, {csv[0], csv[1]}};
  if (has_csv[0] || has_csv[1]) {
    return InvalidArgument(
        fmt::format("the data directory {} holds one CSV file ({}) and two are needed: put {} "
                    "there, too",
                    dir, kCsvNames[has_csv[0] ? 0 : 1], kCsvNames[has_csv[0] ? 1 : 0]));
  }
  // What is there is not enough. Some IDX files: say which are missing.
  for (const char* name : kIdxFileNames) {
    for (const char* suffix : {"", ".gz"}) {
      std::error_code ignored;
      if (fs::exists(In(dir, std::string(name) + suffix), ignored)) return idx.status();
    }
  }
  PASSEL_ASSIGN_OR_RETURN(const std::string others, OtherNames(dir));
  return NotFound(fmt::format(
      "the data directory {} holds no data set: it must hold {}, {}, {} and {}, each plain or with "
      ".gz, or {}, or {} and {}{}",
      dir, kIdxFileNames[0], kIdxFileNames[1], kIdxFileNames[2], kIdxFileNames[3], kNpzName,
      kCsvNames[0], kCsvNames[1],
      others.empty() ? ""
                     : fmt::format("; there is {}: name an npz file itself, or rename CSV files to "
                                   "{} and {}",
                                   others, kCsvNames[0], kCsvNames[1])));
}

// An archive begins with its first file or, if it is empty, with its end.
Result<bool> IsZip(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(path));
  std::array<char, 4> start{};
  PASSEL_RETURN_IF_ERROR(ReadUpTo(*source, std::as_writable_bytes(std::span(start))).status());
  const std::string_view text(start.data(), start.size());
  return text == "PK\x03\x04" || text == "PK\x05\x06";
}

}  // namespace

Result<DataFiles> FindData(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot use the data in {}", path));
  }
  if (S_ISDIR(info.st_mode)) return FindInDirectory(path);
  PASSEL_ASSIGN_OR_RETURN(const bool zip, IsZip(path));
  if (zip) return DataFiles{DataFormat::kNpz, {path}};
  if (path.ends_with(".csv")) {
    return InvalidArgument(
        fmt::format("{} is one CSV file and two are needed: name the directory that holds {} and "
                    "{}",
                    path, kCsvNames[0], kCsvNames[1]));
  }
  return InvalidArgument(
      fmt::format("{} is a file and no npz archive: name an npz file, or the directory that holds "
                  "the four IDX files or two CSV files",
                  path));
}

}  // namespace passel
