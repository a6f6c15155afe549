// idx.h - one file in the IDX format of MNIST, from any source of bytes, plain or gzip.
//
//   images   u32 magic 2051 | u32 count | u32 rows | u32 cols | u8[count * rows * cols]
//   labels   u32 magic 2049 | u32 count                       | u8[count]
//   The header's numbers are big-endian. gzip is recognised by the first two bytes of the content.
//
// Files are not trusted. A header is believed only as far as the file can bear it out, nothing is
// inflated past the size that the header announces, and a gzip checksum that does not match is an
// error.
//
// Threads    Distinct readers may be used at the same time; one reader by one thread at a time.
// Errors     kDataLoss for a file that is cut off, too long or corrupt; kInvalidArgument for one
//            that is not what it should be (magic number, zero or too many images).

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

struct z_stream_s;  // of zlib

namespace passel {

struct DataOptions;   // data_source.h
struct MeasuredData;  // blob_internal.h

/// A sequence of bytes that is read once, from its beginning to its end.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// All bytes there are, read or not.
  virtual std::uint64_t size() const = 0;
  /// Reads 1 to `to.size()` bytes and returns how many; 0 only at the end.
  virtual Result<std::size_t> Read(std::span<std::byte> to) = 0;
};

/// Fills `out` unless `source` ends before; returns the bytes read.
Result<std::size_t> ReadUpTo(ByteSource& source, std::span<std::byte> out);

/// Bytes in memory, which must outlive it.
class SpanSource : public ByteSource {
 public:
  explicit SpanSource(std::span<const std::byte> bytes) : rest_(bytes), size_(bytes.size()) {}
  std::uint64_t size() const override { return size_; }
  Result<std::size_t> Read(std::span<std::byte> to) override;

 private:
  std::span<const std::byte> rest_;
  std::uint64_t size_;
};

/// A regular file.
class FileSource : public ByteSource {
 public:
  /// Errors: kNotFound; kInvalidArgument when `path` is no regular file.
  static Result<std::unique_ptr<FileSource>> Open(const std::string& path);
  std::uint64_t size() const override { return size_; }
  Result<std::size_t> Read(std::span<std::byte> to) override;

 private:
  FileSource(FileDescriptor fd, std::uint64_t size, std::string path);
  FileDescriptor fd_;
  std::uint64_t size_;
  std::string path_;
};

enum class IdxKind { kImages, kLabels };

/// What a header says. For labels rows = cols = 1.
struct IdxShape {
  std::uint32_t count = 0;
  std::uint32_t rows = 1;
  std::uint32_t cols = 1;
  /// count * rows * cols, in bytes.
  std::uint64_t PayloadBytes() const {
    return static_cast<std::uint64_t>(count) * rows * cols;  // bounded by kMaxIdxPayloadBytes
  }
  friend bool operator==(const IdxShape&, const IdxShape&) = default;
};

/// The largest payload that is read, 4 GiB.
inline constexpr std::uint64_t kMaxIdxPayloadBytes = std::uint64_t{1} << 32;

/// The most that deflate can expand: 258 bytes from 2 bits.
inline constexpr std::uint64_t kMaxDeflateRatio = 1032;

/// Reads one IDX file: the header at Open(), everything else in one ReadPayload().
class IdxReader {
 public:
  /// Reads and checks the header, and that a source of this size can hold what it announces
  /// (exactly for a plain file; by the best ratio that deflate can reach for gzip).
  /// `name` is put into every error.
  static Result<IdxReader> Open(std::unique_ptr<ByteSource> source, IdxKind kind, std::string name);

  const IdxShape& shape() const { return shape_; }
  const std::string& name() const { return name_; }

  /// Fills `out` (count, rows, cols) and checks that the file, and the gzip stream with its
  /// checksum, end there. On error `out` holds something. Call it once.
  /// REQUIRES: out.size() == shape().PayloadBytes().
  Status ReadPayload(std::span<std::byte> out);

 private:
  struct EndInflate {
    void operator()(z_stream_s* stream) const;
  };

  IdxReader(std::unique_ptr<ByteSource> source, IdxKind kind, std::string name);
  Status ReadHeader();
  Status CheckShape() const;
  Status StartDecoding();
  Status Refill();
  Result<std::size_t> ReadPlain(std::span<std::byte> out);
  Result<std::size_t> Inflate(std::span<std::byte> out);
  /// Fills `out` unless the content ends before; returns the bytes read.
  Result<std::size_t> ReadFully(std::span<std::byte> out) {
    return stream_ != nullptr ? Inflate(out) : ReadPlain(out);
  }
  std::size_t header_bytes() const { return kind_ == IdxKind::kImages ? 16 : 8; }

  std::unique_ptr<ByteSource> source_;
  IdxKind kind_;
  std::string name_;
  IdxShape shape_;
  // Bytes [input_begin_, input_end_) of the buffer are read from the source and not yet used.
  std::unique_ptr<std::byte[]> input_;
  std::size_t input_begin_ = 0;
  std::size_t input_end_ = 0;
  bool source_ended_ = false;
  bool gzip_ended_ = false;
  std::unique_ptr<z_stream_s, EndInflate> stream_;  // there is one if the content is gzip
};

/// The four files of an MNIST-like directory, in the order of BlobPart (blob_internal.h), without
/// ".gz".
inline constexpr std::array<const char*, 4> kIdxFileNames = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

/// Opens these four files, whose headers must fit one another and the files' sizes. They are
/// decoded at the same time on four threads.
Result<MeasuredData> OpenIdxFiles(const std::vector<std::string>& paths,
                                  const DataOptions& options);

}  // namespace passel
