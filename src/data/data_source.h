// data_source.h - one path that a user named, and the labelled images behind it, in any format.
//
//   idx    a directory with the four IDX files of MNIST, each plain or gzip
//   npz    an npz file of any name, or a directory with Keras' mnist.npz
//   csv    a directory with mnist_train.csv and mnist_test.csv
//
// In a directory names decide: all four IDX files go first; then npz and csv, of which only one may
// be there.
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
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/dataset.h"

namespace passel {

enum class DataFormat { kIdx, kNpz, kCsv, kFake };

/// "idx", "npz", "csv", "fake".
std::string_view DataFormatName(DataFormat format);

struct DataOptions {
  /// FakeData(), whatever the path.
  bool fake = false;
  /// Only the first lines of a CSV file are used; 0: all. The reference program uses 20,000 for
  /// training and 10,000 for the test.
  std::uint64_t csv_train_limit = 0;
  std::uint64_t csv_test_limit = 0;
  /// Gets "Extracting <path>" when an IDX file is about to be read, as the reference programs
  /// print it. Empty: nobody is told.
  std::function<void(const std::string& line)> on_line;
  /// Gets the path and the lines read so far, each 10,000 examples of a CSV file. Empty: nobody is
  /// told.
  std::function<void(const std::string& path, std::uint32_t examples)> on_csv_progress;
};

/// What a path leads to.
struct DataFiles {
  DataFormat format = DataFormat::kIdx;
  /// idx: in the order of kIdxFileNames. npz: one. csv: training, test. fake: none.
  std::vector<std::string> paths;
};

/// Finds the files alone: cheap, and no promise that they can be read through.
Result<DataFiles> FindData(const std::string& path);

/// FindData(), and whatever can be checked without reading the files through: headers, sizes and,
/// of CSV files, the first example.
Result<DataFiles> CheckData(const std::string& path);

class DataSource {
 public:
  DataSource(DataSource&&) noexcept;
  DataSource& operator=(DataSource&&) noexcept;
  ~DataSource();

  DataFormat format() const;
  /// The files that are read, as in DataFiles.
  const std::vector<std::string>& files() const;
  /// Size of the blob (dataset.h) that LoadInto() fills.
  std::size_t bytes() const;
  /// Fills `blob`, which may be larger than bytes(). After an error View() refuses it. May be
  /// called again. Calls the functions of DataOptions on this thread.
  /// Errors: kFailedPrecondition when `blob` is too small, or the files changed since OpenData().
  Status LoadInto(std::span<std::byte> blob);

  class Impl;
  explicit DataSource(std::unique_ptr<Impl> impl);  ///< For OpenData() and FakeData().

 private:
  std::unique_ptr<Impl> impl_;
};

/// Opens the data behind `path`, a file or a directory, and measures it: CSV files are read through
/// once for that, the others are not.
Result<DataSource> OpenData(const std::string& path, const DataOptions& options = {});

/// Examples in each set of FakeData().
inline constexpr std::uint32_t kFakeExamples = 10'000;

/// What the reference programs' read_data_sets(fake_data=True) makes: a training and a test set of
/// 10,000 images of 28 x 28 pixels, all 255 (1.0 as float32), with the label 0 of ten classes.
DataSource FakeData();

/// The split that goes with FakeData(): unlike SplitValidation(), all three sets have all 10,000
/// examples. REQUIRES: `dataset` was made by FakeData().
DataSplit SplitFakeData(const Dataset& dataset);

}  // namespace passel
