// npz.h - MNIST, or a set like it, as Keras keeps it: one npz file (a zip archive of npy arrays)
// with four arrays.
//
//   x_train.npy  u1 (n, rows, cols) or (n, pixels)     y_train.npy  integers (n)
//   x_test.npy   u1 (m, rows, cols) or (m, pixels)     y_test.npy   integers (m)
//
// Labels may be integers of any width and sign whose values fit into a byte; other arrays in the
// file are ignored.
//
// The file is not trusted. An array's npy header is believed only as far as the compressed bytes
// can bear it out, nothing is inflated past the size that it announces, and a checksum that does
// not match is an error.
//
// Threads    Distinct readers may be used at the same time; one reader by one thread at a time.
// Errors     kDataLoss for a file that is cut off or corrupt; kNotFound for arrays that are
//            missing; kInvalidArgument for arrays of another kind.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/npy.h"
#include "data/zip_archive.h"

namespace passel {

inline constexpr std::array<const char*, 4> kNpzArrayNames = {"x_train.npy", "y_train.npy",
                                                              "x_test.npy", "y_test.npy"};

class NpzReader {
 public:
  /// Reads and checks the archive's directory and the headers of the four arrays.
  static Result<NpzReader> Open(const std::string& path);
  /// `bytes` must outlive the reader; `name` is put into every error.
  static Result<NpzReader> OpenBytes(std::span<const std::byte> bytes, std::string name);

  std::uint32_t train_count() const { return counts_[0]; }
  std::uint32_t test_count() const { return counts_[2]; }
  /// An image's size. Rows and columns are 0 if no array says them; else pixels() is the product.
  std::uint64_t pixels() const { return pixels_; }
  std::uint32_t rows() const { return rows_; }
  std::uint32_t cols() const { return cols_; }

  /// Fills `out` with array `part` of kNpzArrayNames, labels converted to bytes, and checks that
  /// the array, and its checksum, end there. On error `out` holds something.
  /// REQUIRES: out.size() is the count, times pixels() for images.
  Status ReadArray(std::size_t part, std::span<std::byte> out);

  /// Of array `part`, for errors.
  std::string Name(std::size_t part) const;

 private:
  NpzReader(ZipArchive archive, std::array<std::size_t, 4> places)
      : archive_(std::move(archive)), places_(places) {}
  static Result<NpzReader> Open(ZipArchive archive);
  /// A source that stands behind the npy header, which goes to `header`.
  Result<std::unique_ptr<ByteSource>> OpenArray(std::size_t part, NpyHeader* header);
  /// Takes the size of the images in array `part`, which must be that of those before.
  Status TakeSize(std::size_t part, const std::vector<std::uint64_t>& shape);
  Status ReadLabels(ByteSource& source, const NpyHeader& header, std::size_t part,
                    std::span<std::byte> out);
  Status CutOff(std::size_t part, const NpyHeader& header, std::uint64_t got) const;

  ZipArchive archive_;
  std::array<std::size_t, 4> places_;  // of the arrays in the archive
  std::array<std::uint32_t, 4> counts_{};
  std::uint64_t pixels_ = 0;
  std::uint32_t rows_ = 0, cols_ = 0;
};

/// Opens the one file.
Result<MeasuredData> OpenNpzFile(const std::vector<std::string>& paths, const DataOptions& options);

/// Whether `path` is, byte by byte, the mnist.npz that Keras downloads.
bool IsKerasMnist(const std::string& path);

}  // namespace passel
