// Which files a path leads to (data_source.h).

#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "data/data_source.h"
#include "data/formats.h"
#include "data/idx.h"

namespace passel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostNamed = 4;  // files in a message

// What a directory must hold for it.
std::string Needs(const DataFormat& format) {
  return FileNames(format) + (format.gzip ? ", each a file, plain or with .gz" : "");
}

// `wanted` of each row, with "or" between them; rows without are left out.
template <typename Wanted>
std::string AnyOf(const Wanted& wanted) {
  std::vector<std::string> all;
  for (const DataFormat& format : DataFormats()) {
    if (std::string one = wanted(format); !one.empty()) all.push_back(std::move(one));
  }
  return fmt::format("{}", fmt::join(all, ", or "));
}

// What else in `dir` may be meant: "a.npz, b.csv".
Result<std::string> OtherNames(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (HasDataEnding(name)) names.push_back(name);
  }
  if (error) return ErrnoStatus(error.value(), fmt::format("cannot list the directory {}", dir));
  std::sort(names.begin(), names.end());
  if (names.size() > kMostNamed) {
    names.resize(kMostNamed);
    names.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Status NoDataSet(const std::string& dir) {
  PASSEL_ASSIGN_OR_RETURN(const std::string others, OtherNames(dir));
  const std::string how = AnyOf([](const DataFormat& format) -> std::string {
    if (format.ending.empty()) return "";
    return format.files.size() == 1
               ? fmt::format("name {} itself", format.words)
               : fmt::format("rename {} to {}", format.words, FileNames(format));
  });
  return NotFound(fmt::format("the data directory {} holds no data set: it must hold {}{}", dir,
                              AnyOf(Needs),
                              others.empty() ? "" : fmt::format("; there is {}: {}", others, how)));
}

// The files of one format in a directory.
struct Present {
  DataFiles files;
  std::vector<std::string> names, missing;
};

Present Look(const std::string& dir, const DataFormat& format) {
  Present present;
  present.files.format = &format;
  for (const std::string& name : format.files) {
    std::string path = fs::path(dir) / name;
    if (format.gzip && !IsRegularFile(path)) path += ".gz";
    if (!IsRegularFile(path)) {
      present.missing.push_back(name);
      continue;
    }
    present.names.push_back(name);
    present.files.paths.push_back(std::move(path));
  }
  return present;
}

Result<DataFiles> FindInDirectory(const std::string& dir) {
  std::vector<Present> begun;  // of which a file is there
  for (const DataFormat& format : DataFormats()) {
    Present present = Look(dir, format);
    if (format.usual && present.missing.empty()) return present.files;
    if (!present.names.empty()) begun.push_back(std::move(present));
  }
  if (begun.size() > 1) {  // a part of the usual files means less than what else is there
    std::erase_if(begun, [](const Present& one) { return one.files.format->usual; });
  }
  if (begun.empty()) return NoDataSet(dir);
  if (begun.size() > 1) {
    const auto alone = std::ranges::find_if(
        begun, [](const Present& one) { return one.files.format->files.size() == 1; });
    return InvalidArgument(fmt::format(
        "the data directory {} holds {} and {}: {}keep one of the sets there", dir,
        begun[0].names[0], begun[1].names[0],
        alone == begun.end() ? "" : fmt::format("name {} itself, or ", alone->names[0])));
  }
  if (begun[0].missing.empty()) return begun[0].files;
  const DataFormat& format = *begun[0].files.format;
  return Status(format.usual ? Code::kNotFound : Code::kInvalidArgument,
                fmt::format("the data directory {} lacks {}: it must hold {}", dir,
                            fmt::join(begun[0].missing, ", "), Needs(format)));
}

Result<DataFiles> FindFile(const std::string& path) {
  PASSEL_ASSIGN_OR_RETURN(const auto source, FileSource::Open(path));
  std::array<char, 16> start{};
  PASSEL_RETURN_IF_ERROR(ReadUpTo(*source, std::as_writable_bytes(std::span(start))).status());
  const std::string_view text(start.data(), start.size());
  const fs::path name = fs::path(path).filename();
  for (const DataFormat& format : DataFormats()) {
    if (std::ranges::any_of(format.starts, [&](const auto& s) { return text.starts_with(s); })) {
      return DataFiles{&format, {path}};
    }
  }
  for (const DataFormat& format : DataFormats()) {
    const fs::path plain = format.gzip && name.extension() == ".gz" ? name.stem() : name;
    const bool one_of_several =
        format.files.size() > 1 && (std::ranges::count(format.files, plain.string()) > 0 ||
                                    (!format.ending.empty() && name.extension() == format.ending));
    if (!one_of_several) continue;
    return InvalidArgument(fmt::format("{} is one of {}: name the directory that holds {}", path,
                                       format.words, FileNames(format)));
  }
  return InvalidArgument(
      fmt::format("{} is a file and no data set: name {}, or the directory that holds {}", path,
                  AnyOf([](const DataFormat& f) { return f.files.size() == 1 ? f.words : ""; }),
                  AnyOf([](const DataFormat& f) { return f.files.size() > 1 ? f.words : ""; })));
}

}  // namespace

Result<DataFiles> FindData(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot use the data in {}", path));
  }
  return S_ISDIR(info.st_mode) ? FindInDirectory(path) : FindFile(path);
}

}  // namespace passel
