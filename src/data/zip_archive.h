// zip_archive.h - the files inside a zip archive that nobody vouches for.
//
// libzip reads the container.
//
// Threads    Distinct archives may be used at the same time; one archive, with its members, by one
//            thread at a time.
// Errors     kDataLoss for an archive that is cut off or corrupt.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/idx.h"

struct zip;         // of libzip
struct zip_error;   // of libzip
struct zip_source;  // of libzip

namespace passel {

/// What the archive's directory claims about one file. Sizes are believed by nobody.
struct ZipEntry {
  std::string name;
  std::uint64_t size = 0;             ///< bytes after decompression
  std::uint64_t compressed_size = 0;  ///< bytes inside the archive
};

class ZipArchive {
 public:
  /// Errors: also kNotFound, and kInvalidArgument when `path` is no regular file or no archive.
  static Result<ZipArchive> Open(const std::string& path);
  /// `bytes` must outlive the archive; `name` is put into every error.
  static Result<ZipArchive> OpenBytes(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  /// In the order of the archive's directory. Names may occur more than once.
  const std::vector<ZipEntry>& entries() const { return entries_; }

  /// The decompressed bytes of entry `index`, which must not outlive the archive. Read() returns 0
  /// only after the checksum and the size in the directory were found to be right.
  /// Errors: kInvalidArgument for an encrypted file, and one neither stored nor deflated.
  /// REQUIRES: index < entries().size().
  Result<std::unique_ptr<ByteSource>> OpenMember(std::size_t index);

 private:
  struct Discard {
    void operator()(zip* archive) const;
  };

  ZipArchive(zip* archive, std::string name) : archive_(archive), name_(std::move(name)) {}
  /// Takes `source` over (nullptr: why is in `error`) and finishes `error`.
  static Result<ZipArchive> OpenSource(zip_source* source, zip_error* error, std::string name,
                                       std::uint64_t archive_bytes);
  Status ReadDirectory(std::uint64_t archive_bytes);

  std::unique_ptr<zip, Discard> archive_;
  std::string name_;
  std::vector<ZipEntry> entries_;
};

}  // namespace passel
