// dataset.h - a training and a test set of labelled grey images in one block of bytes.
//
//   byte 0             kBlobAlign
//   +------------------+--------------+--------------+-------------+-------------+
//   | magic, version,  | train images | train labels | test images | test labels |
//   | sizes, offsets   | u8 (n, r, c) | u8 (n)       | u8 (m, r, c)| u8 (m)      |
//   +------------------+--------------+--------------+-------------+-------------+
//   Every part starts at a multiple of kBlobAlign. Any change to these bytes must raise
//   kBlobVersion (dataset.cc).
//
// The block ("blob") holds offsets and no pointer, so it can live in a memfd that one process
// fills and every worker maps read-only at its own address: one copy of the data per host.
//
// OpenData() is in data_source.h and reads every format; this header knows the blob.
//
// Threads    A Dataset is a view: copy it, and read it from any number of threads.
// Errors     One sentence that names the file. kNotFound, kInvalidArgument, kDataLoss.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace passel {

/// Alignment of every part inside a blob, in bytes: one page, so that the images of a page-aligned
/// blob can be registered with a GPU on their own.
inline constexpr std::size_t kBlobAlign = 4096;

/// Some labelled images, somewhere else: a view.
struct ImageSet {
  std::span<const std::uint8_t> images;  ///< (size, rows, cols), row-major; 0 is background
  std::span<const std::uint8_t> labels;  ///< (size)
  std::size_t image_pixels = 0;          ///< rows * cols

  std::size_t size() const { return labels.size(); }
  /// Pixels of one image. REQUIRES: i < size().
  std::span<const std::uint8_t> image(std::size_t i) const {
    return images.subspan(i * image_pixels, image_pixels);
  }
  /// Examples [begin, begin + count). REQUIRES: they exist.
  ImageSet Slice(std::size_t begin, std::size_t count) const {
    return {images.subspan(begin * image_pixels, count * image_pixels),
            labels.subspan(begin, count), image_pixels};
  }
};

/// CRC32, as zlib has it, of the images and then the labels.
std::uint32_t Checksum(const ImageSet& set);

class Dataset {
 public:
  /// Looks at a blob that a DataSource filled, here or in another process. Everything is
  /// checked once, here: magic, version, every range, and that every label is < num_classes().
  /// The bytes must outlive the view and not change (seal the memfd, or map it where nobody
  /// writes). `blob` may be longer than the data, for example rounded up to pages.
  /// Errors: kFailedPrecondition when this is no blob, or one of another version; kDataLoss.
  static Result<Dataset> View(std::span<const std::byte> blob);

  const ImageSet& train() const { return train_; }
  const ImageSet& test() const { return test_; }
  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  /// Largest label of the training set, plus one.
  std::size_t num_classes() const { return num_classes_; }

 private:
  Dataset() = default;
  ImageSet train_, test_;
  std::size_t rows_ = 0, cols_ = 0, num_classes_ = 0;
};

struct DataOptions;  // data_source.h

/// A data set that owns its memory (heap). Move-only.
class OwnedDataset {
 public:
  /// `path` as for OpenData() (data_source.h). Errors: those of OpenData() and LoadInto();
  /// kResourceExhausted.
  static Result<OwnedDataset> Load(const std::string& path);
  static Result<OwnedDataset> Load(const std::string& path, const DataOptions& options);
  const Dataset& operator*() const { return view_; }
  const Dataset* operator->() const { return &view_; }

 private:
  OwnedDataset(std::unique_ptr<std::byte[]> bytes, Dataset view)
      : bytes_(std::move(bytes)), view_(view) {}
  std::unique_ptr<std::byte[]> bytes_;
  Dataset view_;
};

/// Training data split as the reference programs split it.
struct DataSplit {
  ImageSet train;       ///< everything after the validation examples
  ImageSet validation;  ///< the first `validation_size` training examples, in file order
  ImageSet test;
};

/// Splits the first `train_examples` training examples (or all, if there are fewer; 0: all).
/// Errors: kInvalidArgument unless 0 <= validation_size <= their number. With all examples taken
/// for validation the training set is empty.
Result<DataSplit> SplitValidation(const Dataset& dataset, std::int64_t validation_size,
                                  std::uint64_t train_examples = 0);

}  // namespace passel
