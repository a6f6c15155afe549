// blob_internal.h - how the readers of src/data write the blob that dataset.h describes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"

namespace passel {

/// Index of a part: also the order of kIdxFileNames.
enum BlobPart { kTrainImages, kTrainLabels, kTestImages, kTestLabels, kBlobParts };
constexpr bool IsImages(std::size_t part) { return part == kTrainImages || part == kTestImages; }

/// The first bytes of a blob, in this host's byte order.
struct BlobHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t num_classes;
  std::uint32_t train_count;
  std::uint32_t test_count;
  std::uint32_t rows;
  std::uint32_t cols;
  std::uint64_t total_bytes;         // from the header's first byte to the last label
  std::uint64_t offset[kBlobParts];  // bytes from the header's first byte
};

/// What a reader knows before it reads any image. Each count times rows * cols is at most
/// kMaxIdxPayloadBytes (data/idx.h), so that no size computed from it can overflow.
struct BlobShape {
  std::uint32_t train_count = 0;
  std::uint32_t test_count = 0;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  friend bool operator==(const BlobShape&, const BlobShape&) = default;
};

/// Rows and columns of images of which only the pixels are known, 1 to kMaxIdxPayloadBytes of them:
/// a square if there is one, else one row.
void SetSides(std::uint64_t pixels, BlobShape* shape);

/// Bytes of a blob of this shape.
std::uint64_t BlobBytes(const BlobShape& shape);

/// Errors: kDataLoss unless both numbers are the same.
Status CompareCounts(const std::string& images_name, std::uint64_t images,
                     const std::string& labels_name, std::uint64_t labels);

/// Fills one blob. View() takes it only after Finish().
class BlobWriter {
 public:
  /// Makes whatever `blob` holds unusable: a reader that fails later leaves nothing that
  /// Dataset::View() takes. `source` names the data in errors.
  /// Errors: kFailedPrecondition when `blob` is smaller than BlobBytes(shape).
  static Result<BlobWriter> Create(std::span<std::byte> blob, const BlobShape& shape,
                                   const std::string& source);

  /// Where the images (count, rows, cols) or labels (count) go.
  std::span<std::byte> part(BlobPart part) const;

  /// Checks the labels and writes the header. num_classes becomes the largest training label plus
  /// one, and at least `min_classes`. The names are those of the label files, for errors.
  /// Errors: kDataLoss for a test label that no training label reaches.
  Status Finish(const std::string& train_labels, const std::string& test_labels,
                std::uint32_t min_classes = 1);

 private:
  BlobWriter(std::span<std::byte> blob, const BlobHeader& header) : blob_(blob), header_(header) {}
  std::span<std::byte> blob_;
  BlobHeader header_;
};

/// Data whose size is known, and how to read it.
struct MeasuredData {
  BlobShape shape;
  std::string train_labels, test_labels;  ///< where they are, for errors
  /// Fills the four parts; may be called again. Errors: kFailedPrecondition when the files are not
  /// those that were measured.
  std::function<Status(const BlobWriter& to)> read;
  std::uint32_t min_classes = 1;
};

}  // namespace passel
