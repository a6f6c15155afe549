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
#include <vector>

#include "base/status.h"
#include "data/idx.h"

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

  ZipArchive(ZipArchive&&) noexcept;
  ZipArchive& operator=(ZipArchive&&) noexcept;
  ~ZipArchive();

  const std::string& name() const;
  /// In the order of the archive's directory. Names may occur more than once.
  const std::vector<ZipEntry>& entries() const;

  /// The decompressed bytes of entry `index`, which must not outlive the archive. Read() returns 0
  /// only after the checksum and the size in the directory were found to be right.
  /// Errors: kInvalidArgument for an encrypted file, and one neither stored nor deflated.
  /// REQUIRES: index < entries().size().
  Result<std::unique_ptr<ByteSource>> OpenMember(std::size_t index);

 private:
  class Impl;
  explicit ZipArchive(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace passel
