// file.h - whole files: read them with a size limit, replace them atomically.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

struct OpenFile {
  FileDescriptor fd;  ///< to be read
  std::uint64_t bytes = 0;
};
/// Opens a regular file, and never waits: a pipe under that name, say, is refused. `otherwise` ends
/// the sentence about what is none. Errors: kNotFound; kInvalidArgument.
Result<OpenFile> OpenRegularFile(const std::string& path,
                                 std::string_view otherwise = "name a file");

/// The bytes of a regular file. Errors: kNotFound; kResourceExhausted above `max_bytes`.
Result<std::vector<std::uint8_t>> ReadFile(const std::string& path, std::size_t max_bytes);

/// Whether a regular file, or a symbolic link to one, is at `path`.
bool IsRegularFile(const std::string& path);

/// The system calls of an atomic save, replaceable so that tests can make each one fail and can
/// replay every prefix of them. Each returns 0 or an errno value.
class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int Open(const std::string& path, int* fd);              ///< O_CREAT | O_EXCL, mode 0666
  virtual int Write(int fd, const void* data, std::size_t bytes);  ///< all of it, or an error
  /// The same from byte `offset` of the file on; where Write() goes on stays as it is.
  virtual int WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset);
  /// Has the disk begin with what was written, and waits for nothing: a long file is not left to
  /// the SyncFile() at its end, nor do all of its pages wait in memory that others need.
  virtual void StartSync(int fd);
  /// Whether writes of `fd` go past the page cache from now on: then all of memory, offset and
  /// length are multiples of kDirectBytes. EINVAL: not on this file system.
  virtual int SetDirect(int fd, bool direct);
  virtual int SyncFile(int fd);
  virtual int Close(int fd);
  virtual int Rename(const std::string& from, const std::string& to);
  virtual int SyncDir(const std::string& dir);
  virtual int Unlink(const std::string& path);
  static FileOps& Real();
};

/// What the disks of today want writes past the page cache to be a multiple of.
inline constexpr std::size_t kDirectBytes = 4096;

/// OK if nothing is at `path`, or a regular file or a symbolic link.
/// Errors: kInvalidArgument for a directory, a device, a pipe.
Status CheckReplaceable(const std::string& path);

/// A file that replaces another when it is complete: temporary file in the same folder, fsync,
/// rename, fsync of the folder. A symbolic link is replaced, not followed. On error, and without
/// Commit(), the path holds what it held before and no temporary file is left; only if the last
/// step of Commit() alone fails, the new contents are in place but may not outlive a power cut.
class AtomicFile {
 public:
  /// Errors: those of CheckReplaceable(); the failing call, named, as everywhere here.
  static Result<AtomicFile> Create(const std::string& path, FileOps& ops = FileOps::Real());
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  /// Behind what was written so.
  Status Write(std::span<const std::byte> data);
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> data);
  /// Has WriteAt() write whole pages past the page cache from now on: nothing is copied into it,
  /// and it is left to others. Only data that lie in memory as far behind a multiple of
  /// kDirectBytes as in the file go that way. False: the file system cannot do it.
  bool GoPastCache();
  /// REQUIRES: every call before it returned OK.
  Status Commit();

 private:
  AtomicFile(const std::string& path, FileOps& ops) : path_(path), ops_(&ops) {}
  Status Failed(const char* step, int error) const;
  Status Wrote(int error, std::size_t bytes);
  int SetDirect(bool direct);
  Status WriteCachedAt(std::uint64_t offset, std::span<const std::byte> data);

  std::string path_, temporary_, folder_;
  FileOps* ops_;
  int fd_ = -1;
  std::size_t not_started_ = 0;  // bytes written since StartSync()
  bool past_cache_ = false;      // whole pages
  bool direct_ = false;          // so is fd_ now
};

/// The file that a temporary one was to become, by its name: "model" of "model.tmp.4711.0", which a
/// process that was killed may have left. "" if `name` is that of none.
std::string_view TargetOfTemporary(std::string_view name);

/// Replaces `path` by the concatenation of `pieces`, as an AtomicFile does.
/// Errors: those of AtomicFile.
Status WriteFileAtomically(const std::string& path,
                           std::span<const std::span<const std::byte>> pieces,
                           FileOps& ops = FileOps::Real());

}  // namespace passel
