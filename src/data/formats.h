// formats.h - the formats that labelled images are read from: one table.
//
// Finding the files, opening them, and the words of help texts and errors go through its rows. A
// new format is a reader and a row in formats.cc, which is where rows are explained.
//
// Thread safety: constant data.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace passel {

struct DataOptions;
struct MeasuredData;

struct DataFormat {
  std::string name;   ///< in logs, and in what names the data of a job
  std::string words;  ///< the files, for sentences: "an npz file"
  /// What the files of a directory are called, in the order in which they are opened. All of them
  /// are needed.
  std::vector<std::string> files;
  /// Each file may also be there compressed, with .gz behind its name.
  bool gzip = false;
  /// What downloads and generated digits are: goes before all others in a directory, and files that
  /// are missing can be had.
  bool usual = false;
  /// Files that end so may be meant when they have other names. "": none.
  std::string ending{};
  /// A file of its own is of this format, whatever it is called, if it begins with one of these.
  std::vector<std::string> starts{};
  /// Measures the files, which need not be read through for that.
  Result<MeasuredData> (*open)(const std::vector<std::string>& paths, const DataOptions& options);
  /// A cheaper look at them, for CheckData(). Null: open() is cheap.
  Status (*check)(const std::vector<std::string>& paths) = nullptr;
  /// What else there is to say about the first file; "" if nothing. May be null.
  std::string_view (*note)(const std::string& path) = nullptr;
};

/// All of them, in the order in which sentences name them.
const std::vector<DataFormat>& DataFormats();

/// "mnist_train.csv and mnist_test.csv"
std::string FileNames(const DataFormat& format);

/// What --data_dir may name, for a help text: "four IDX files, plain or gzip, mnist.npz, or ...".
std::string DataFormatsInWords();

/// Whether `path` has the ending of a format: it is meant to be a file.
bool HasDataEnding(const std::string& path);

}  // namespace passel
