// data_source.h - one path that a user named, and the labelled images behind it, in any format of
// formats.h.
//
// In a directory names decide: all four IDX files go first; of the other formats only one may be
// there. A file of its own is told by its first bytes.
//
//   source = OpenData(path);  memory = <source.bytes()>;  source.LoadInto(memory);
//   dataset = Dataset::View(memory);
//
// Threads    Distinct sources may be used at the same time; one source by one thread at a time.
// Errors     One sentence that names the file. kNotFound when there is no data; kInvalidArgument,
//            kDataLoss when it cannot be used.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/dataset.h"

namespace passel {

struct DataFormat;  // formats.h

struct DataOptions {
  /// Whatever the path, what the reference programs' read_data_sets(fake_data=True) makes: a
  /// training and a test set of 10,000 images of 28 x 28 pixels, all 255 (1.0 as float32), with the
  /// label 0 of ten classes.
  bool fake = false;
  /// Only the first lines of a CSV file are used; 0: all. The reference program uses 20,000 for
  /// training and 10,000 for the test.
  std::uint64_t csv_train_limit = 0;
  std::uint64_t csv_test_limit = 0;
  /// Gets "Extracting <path>" when an IDX file is about to be read, as the reference programs
  /// print it. Empty: nobody is told.
  std::function<void(const std::string& line)> on_line{};
  /// Gets the path and the lines read so far, each 10,000 examples of a CSV file. Empty: nobody is
  /// told.
  std::function<void(const std::string& path, std::uint32_t examples)> on_csv_progress{};
};

/// What a path leads to.
struct DataFiles {
  const DataFormat* format = nullptr;  ///< a row of DataFormats()
  std::vector<std::string> paths;      ///< in the order of its file names
};

/// Finds the files alone: cheap, and no promise that they can be read through.
Result<DataFiles> FindData(const std::string& path);

/// FindData(), and whatever can be checked without reading the files through: headers, sizes and,
/// of CSV files, the first example.
Result<DataFiles> CheckData(const std::string& path);

class DataSource {
 public:
  using Load = std::function<Status(std::span<std::byte> blob)>;
  DataSource(std::size_t bytes, Load load) : bytes_(bytes), load_(std::move(load)) {}

  /// Size of the blob (dataset.h) that LoadInto() fills.
  std::size_t bytes() const { return bytes_; }
  /// Fills `blob`, which may be larger than bytes(). The header is written last: after an error, or
  /// a crash on the way, View() refuses the blob. May be called again. Calls the functions of
  /// DataOptions on this thread.
  /// Errors: kFailedPrecondition when `blob` is too small, or the files changed since OpenData().
  Status LoadInto(std::span<std::byte> blob) const { return load_(blob); }

 private:
  std::size_t bytes_;
  Load load_;
};

/// Opens the data behind `path`, a file or a directory, and measures it: CSV files are read through
/// once for that, the others are not.
Result<DataSource> OpenData(const std::string& path, const DataOptions& options = {});

/// The split that goes with made-up data: unlike SplitValidation(), all three sets have all 10,000
/// examples. REQUIRES: `dataset` was read with DataOptions::fake.
DataSplit SplitFakeData(const Dataset& dataset);

}  // namespace passel
