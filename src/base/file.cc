#include "base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/clock.h"

namespace passel {

bool IsRegularFile(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

Result<OpenFile> OpenRegularFile(const std::string& path, std::string_view otherwise) {
  // Non-blocking: a pipe under this name must not stop us before fstat() tells what it is.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, fmt::format("cannot open {}", path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, fmt::format("cannot stat {}", path));
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(fmt::format("{} is not a regular file: {}", path, otherwise));
  }
  return OpenFile{std::move(fd), static_cast<std::uint64_t>(info.st_size)};
}

Result<std::vector<std::uint8_t>> ReadFile(const std::string& path, std::size_t max_bytes) {
  PASSEL_ASSIGN_OR_RETURN(const OpenFile file, OpenRegularFile(path));
  if (file.bytes > max_bytes) {
    return ResourceExhausted(
        fmt::format("{} has {} bytes, more than the {} bytes allowed here: name a smaller file",
                    path, file.bytes, max_bytes));
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.bytes));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(file.fd.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, fmt::format("cannot read {}", path));
    if (got == 0) {
      return DataLoss(
          fmt::format("{} shrank from {} to {} bytes while it was read", path, bytes.size(), done));
    }
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

int FileOps::Open(const std::string& path, int* fd) {
  *fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  return *fd < 0 ? errno : 0;
}

int FileOps::Write(int fd, const void* data, std::size_t bytes) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(fd, p, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    p += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return 0;
}

int FileOps::SyncFile(int fd) { return ::fsync(fd) == 0 ? 0 : errno; }
int FileOps::Close(int fd) { return ::close(fd) == 0 ? 0 : errno; }
int FileOps::Rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}
int FileOps::SyncDir(const std::string& dir) {
  FileDescriptor fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return errno;
  return ::fsync(fd.get()) == 0 ? 0 : errno;
}
int FileOps::Unlink(const std::string& path) { return ::unlink(path.c_str()) == 0 ? 0 : errno; }

FileOps& FileOps::Real() {
  static FileOps ops;
  return ops;
}

Status CheckReplaceable(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return {};  // creating it says what is wrong, if anything
  if (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) return {};
  if (S_ISDIR(info.st_mode)) {
    return InvalidArgument(fmt::format("{} is a directory: name a file in it", path));
  }
  return InvalidArgument(
      fmt::format("{} is not a regular file, so it cannot be replaced: name another", path));
}

Status WriteFileAtomically(const std::string& path,
                           std::span<const std::span<const std::byte>> pieces, FileOps& ops) {
  PASSEL_RETURN_IF_ERROR(CheckReplaceable(path));
  static std::atomic<std::uint32_t> counter{0};
  const std::size_t slash = path.rfind('/');
  const std::string dir = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty()) {
    return InvalidArgument(fmt::format("{} names a folder: add a file name", path));
  }
  // Relaxed: only distinct values matter.
  const std::string temporary =
      fmt::format("{}{}.tmp.{}.{}", slash == std::string::npos ? "" : dir, name, ::getpid(),
                  counter.fetch_add(1, std::memory_order_relaxed));
  int fd = -1;
  if (int error = ops.Open(temporary, &fd)) {
    return ErrnoStatus(error, fmt::format("cannot create {}", temporary));
  }
  const char* step = "write";
  int error = 0;
  for (const auto& piece : pieces) {
    if ((error = ops.Write(fd, piece.data(), piece.size()))) break;
  }
  if (!error && (error = ops.SyncFile(fd))) step = "fsync";
  if (int close_error = ops.Close(fd); close_error && !error) {
    error = close_error;
    step = "close";
  }
  if (!error && (error = ops.Rename(temporary, path))) step = "rename";
  if (error) {
    ops.Unlink(temporary);  // best effort: the first error is the one to report
    return ErrnoStatus(error, fmt::format("cannot {} {}", step, path));
  }
  // The new file is in place; if the folder cannot be synced a power cut may bring the old back.
  if ((error = ops.SyncDir(dir))) return ErrnoStatus(error, fmt::format("cannot fsync {}", dir));
  return {};
}

}  // namespace passel
