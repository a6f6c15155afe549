// Which files a path leads to (data_source.h).

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "data/csv.h"
#include "data/data_source.h"
#include "data/idx.h"
#include "data/npy.h"
#include "data/npz.h"

namespace passel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxDirectoryEntries = 1000;
constexpr const char* kCsvNames[2] = {"mnist_train.csv", "mnist_test.csv"};

// What the first bytes of a file say.
enum class Content { kZip, kCsv, kOther };

Result<Content> Sniff(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(path));
  std::string start(std::min<std::uint64_t>(kCsvSniffBytes, source->size()), '\0');
  PASSEL_ASSIGN_OR_RETURN(const std::size_t got,
                          ReadUpTo(*source, std::as_writable_bytes(std::span(start))));
  start.resize(got);
  // The first file in an archive, or the end of an empty one.
  if (start.starts_with("PK\x03\x04") || start.starts_with("PK\x05\x06")) return Content::kZip;
  return LooksLikeCsv(start) ? Content::kCsv : Content::kOther;
}

std::string FileName(const std::string& path) { return fs::path(path).filename().string(); }

// "a, b and c", at most 4 of them.
std::string List(const std::vector<std::string>& paths) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(paths.size(), 4); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", FileName(paths[i]));
  }
  return paths.size() > 4 ? text + ", ..." : text;
}

struct Candidates {
  std::vector<std::string> zip;  // sorted
  std::vector<std::string> csv;  // sorted
  Status unreadable;             // why one of the files could not be looked at
};

Result<Candidates> Scan(const std::string& dir) {
  Candidates found;
  std::error_code error;
  fs::directory_iterator entries(dir, error);
  std::size_t count = 0;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (++count > kMaxDirectoryEntries) {
      return InvalidArgument(
          fmt::format("the data directory {} holds more than {} files, too many to look for data "
                      "in: name the npz file itself, or a directory with the data alone",
                      dir, kMaxDirectoryEntries));
    }
    std::error_code ignored;  // a link that leads nowhere is no candidate
    if (!entries->is_regular_file(ignored)) continue;
    const std::string path = entries->path().string();
    const auto content = Sniff(path);
    if (!content.ok()) {
      found.unreadable = content.status();
      continue;
    }
    if (*content == Content::kZip) found.zip.push_back(path);
    if (*content == Content::kCsv) found.csv.push_back(path);
  }
  if (error) return ErrnoStatus(error.value(), fmt::format("cannot list the directory {}", dir));
  std::sort(found.zip.begin(), found.zip.end());
  std::sort(found.csv.begin(), found.csv.end());
  return found;
}

// The npz file among the archives, if there is one.
Result<std::optional<std::string>> ChooseNpz(const std::string& dir,
                                             const std::vector<std::string>& zips) {
  std::vector<std::string> holding;
  for (const std::string& zip : zips) {
    if (HoldsNpzDataset(zip)) holding.push_back(zip);
  }
  if (holding.size() > 1) {
    const auto named = std::find_if(holding.begin(), holding.end(), [](const std::string& path) {
      return FileName(path) == "mnist.npz";
    });
    if (named == holding.end()) {
      return InvalidArgument(
          fmt::format("the data directory {} holds several npz files with data ({}): name one of "
                      "them",
                      dir, List(holding)));
    }
    return std::optional(*named);
  }
  if (holding.size() == 1) return std::optional(holding[0]);
  // None is complete. A file of the expected name, or the only one, gets to say what it lacks.
  for (const std::string& zip : zips) {
    if (FileName(zip) == "mnist.npz") return std::optional(zip);
  }
  return std::optional<std::string>();
}

std::uint64_t FileBytes(const std::string& path) {
  std::error_code ignored;
  const auto bytes = fs::file_size(path, ignored);
  return ignored ? 0 : bytes;
}

// Training and test file among files that look right, if there are any.
Result<std::vector<std::string>> ChooseCsv(const std::string& dir,
                                           const std::vector<std::string>& csvs) {
  // Files of the expected names are taken whatever they look like: their reader says what is wrong.
  std::vector<std::string> named;
  for (const char* name : kCsvNames) {
    std::string path = (fs::path(dir) / name).string();
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) named.push_back(std::move(path));
  }
  if (named.size() == 2) return named;
  if (csvs.empty() && named.empty()) return csvs;
  if (csvs.size() < 2) {
    const std::string& only = csvs.empty() ? named[0] : csvs[0];
    return InvalidArgument(
        fmt::format("the data directory {} holds one CSV file ({}) and two are needed: put {} and "
                    "{} there",
                    dir, FileName(only), kCsvNames[0], kCsvNames[1]));
  }
  if (csvs.size() > 2) {
    return InvalidArgument(
        fmt::format("the data directory {} holds {} CSV files with images ({}): name two of them "
                    "{} and {}",
                    dir, csvs.size(), List(csvs), kCsvNames[0], kCsvNames[1]));
  }
  const auto says = [](const std::string& path, const char* word) {
    std::string name = FileName(path);
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return name.find(word) != std::string::npos;
  };
  // Sorted, so the one that says "train" is usually the second.
  for (const auto& [train, test] : {std::pair(csvs[1], csvs[0]), std::pair(csvs[0], csvs[1])}) {
    if (says(train, "train") && !says(test, "train")) return std::vector{train, test};
    if (says(test, "test") && !says(train, "test")) return std::vector{train, test};
  }
  const std::uint64_t bytes[2] = {FileBytes(csvs[0]), FileBytes(csvs[1])};
  if (bytes[0] == bytes[1]) {
    return InvalidArgument(
        fmt::format("{} and {} in {} are of one size, so nothing tells which is the training set: "
                    "name them {} and {}",
                    FileName(csvs[0]), FileName(csvs[1]), dir, kCsvNames[0], kCsvNames[1]));
  }
  return bytes[0] > bytes[1] ? std::vector{csvs[0], csvs[1]} : std::vector{csvs[1], csvs[0]};
}

Result<DataFiles> FindInDirectory(const std::string& dir) {
  const auto idx = FindIdxFiles(dir);
  if (idx.ok()) return DataFiles{DataFormat::kIdx, {idx->begin(), idx->end()}};
  PASSEL_ASSIGN_OR_RETURN(const Candidates found, Scan(dir));
  PASSEL_ASSIGN_OR_RETURN(const auto npz, ChooseNpz(dir, found.zip));
  PASSEL_ASSIGN_OR_RETURN(const auto csv, ChooseCsv(dir, found.csv));
  if (npz && !csv.empty()) {
    return InvalidArgument(
        fmt::format("the data directory {} holds {} and {}: name the npz file itself, or keep one "
                    "of the two sets there",
                    dir, FileName(*npz), List(csv)));
  }
  if (npz) return DataFiles{DataFormat::kNpz, {*npz}};
  if (!csv.empty()) return DataFiles{DataFormat::kCsv, csv};
  // What is there is not enough. Some IDX files: say which are missing.
  for (const char* name : kIdxFileNames) {
    for (const char* suffix : {"", ".gz"}) {
      std::error_code ignored;
      if (fs::exists(fs::path(dir) / (std::string(name) + suffix), ignored)) return idx.status();
    }
  }
  PASSEL_RETURN_IF_ERROR(found.unreadable);
  return NotFound(
      fmt::format("the data directory {} holds no data set: it must hold {}, {}, {} and {}, each "
                  "plain or with .gz, or one mnist.npz, or {} and {}",
                  dir, kIdxFileNames[0], kIdxFileNames[1], kIdxFileNames[2], kIdxFileNames[3],
                  kCsvNames[0], kCsvNames[1]));
}

}  // namespace

std::string OtherDataSets(const std::string& path, const DataFiles& used) {
  // npz and csv in one directory are an error already: only IDX files go before others.
  struct stat info;
  if (used.format != DataFormat::kIdx || ::stat(path.c_str(), &info) != 0 ||
      !S_ISDIR(info.st_mode)) {
    return "";
  }
  const auto found = Scan(path);
  if (!found.ok()) return "";  // too many files: no data directory alone
  std::vector<std::string> npz;
  std::copy_if(found->zip.begin(), found->zip.end(), std::back_inserter(npz), HoldsNpzDataset);
  std::string text;
  if (!npz.empty()) {
    text = fmt::format("{} (npz), to be used by naming {}", List(npz), fs::path(npz[0]).string());
  }
  if (!found->csv.empty()) {
    text += fmt::format("{}{} (csv), to be used from a directory without IDX files",
                        text.empty() ? "" : "; and ", List(found->csv));
  }
  return text.empty() ? text : fmt::format("The four IDX files were taken. Also there: {}.", text);
}

Result<DataFiles> FindData(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot use the data in {}", path));
  }
  if (S_ISDIR(info.st_mode)) return FindInDirectory(path);
  PASSEL_ASSIGN_OR_RETURN(const Content content, Sniff(path));
  if (content == Content::kZip) return DataFiles{DataFormat::kNpz, {path}};
  if (content == Content::kCsv) {
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
