#include "data/formats.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "data/csv.h"
#include "data/idx.h"
#include "data/npz.h"

namespace passel {

const std::vector<DataFormat>& DataFormats() {
  static const std::vector<DataFormat> formats = {
      {.name = "idx",
       .words = "four IDX files",
       .files = {kIdxFileNames.begin(), kIdxFileNames.end()},
       .gzip = true,
       .usual = true,
       .open = OpenIdxFiles},
      {.name = "npz",
       .words = "an npz file",
       .files = {"mnist.npz"},
       .ending = ".npz",
       // An archive begins with its first file or, if it is empty, with its end.
       .starts = {"PK\x03\x04", "PK\x05\x06"},
       .open = OpenNpzFile,
       .note = [](const std::string& path) -> std::string_view {
         return IsKerasMnist(path) ? "the very file that Keras downloads" : "";
       }},
      {.name = "csv",
       .words = "two CSV files",
       .files = {"mnist_train.csv", "mnist_test.csv"},
       .ending = ".csv",
       .open = OpenCsvFiles,
       .check = CheckCsvFiles},
  };
  return formats;
}

std::string FileNames(const DataFormat& format) {
  const std::vector<std::string>& files = format.files;
  if (files.size() == 1) return files[0];
  return fmt::format("{} and {}", fmt::join(files.begin(), files.end() - 1, ", "), files.back());
}

std::string DataFormatsInWords() {
  std::string text;
  for (const DataFormat& format : DataFormats()) {
    text += text.empty() ? "" : &format == &DataFormats().back() ? ", or " : ", ";
    // The names of the usual files are long, and known.
    text += format.usual ? format.words : FileNames(format);
    if (format.gzip) text += ", plain or gzip";
  }
  return text;
}

bool HasDataEnding(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension();
  return !ending.empty() && std::ranges::any_of(DataFormats(), [&](const DataFormat& format) {
    return format.ending == ending;
  });
}

}  // namespace passel
