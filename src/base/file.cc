#include "base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/clock.h"

namespace passel {
namespace {

constexpr std::string_view kTemporary = ".tmp.";
constexpr std::size_t kSyncEvery = std::size_t{32} << 20;  // bytes

}  // namespace

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

int FileOps::WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(fd, p, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    p += put;
    bytes -= static_cast<std::size_t>(put);
    offset += static_cast<std::uint64_t>(put);
  }
  return 0;
}

// A hint: where the file system knows no such call, SyncFile() does it all.
void FileOps::StartSync(int fd) { (void)::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); }
int FileOps::SetDirect(int fd, bool direct) {
  struct statfs system;
  // A server would be waited for at each write.
  if (direct && ::fstatfs(fd, &system) == 0 && system.f_type == NFS_SUPER_MAGIC) return EINVAL;
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return errno;
  return ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 ? 0 : errno;
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

Result<AtomicFile> AtomicFile::Create(const std::string& path, FileOps& ops) {
  PASSEL_RETURN_IF_ERROR(CheckReplaceable(path));
  static std::atomic<std::uint32_t> counter{0};
  AtomicFile file(path, ops);
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty()) {
    return InvalidArgument(fmt::format("{} names a folder: add a file name", path));
  }
  file.folder_ = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  // Relaxed: only distinct values matter.
  file.temporary_ =
      fmt::format("{}{}{}{}.{}", slash == std::string::npos ? "" : file.folder_, name, kTemporary,
                  ::getpid(), counter.fetch_add(1, std::memory_order_relaxed));
  if (const int error = ops.Open(file.temporary_, &file.fd_)) {
    file.fd_ = -1;
    return ErrnoStatus(error, fmt::format("cannot create {}", file.temporary_));
  }
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      folder_(std::move(other.folder_)),
      ops_(other.ops_),
      fd_(std::exchange(other.fd_, -1)),
      not_started_(other.not_started_),
      past_cache_(other.past_cache_),
      direct_(other.direct_) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  // Best effort: why it is given up was reported.
  (void)ops_->Close(fd_);
  (void)ops_->Unlink(temporary_);
}

Status AtomicFile::Failed(const char* step, int error) const {
  return ErrnoStatus(error, fmt::format("cannot {} {}", step, path_));
}

Status AtomicFile::Wrote(int error, std::size_t bytes) {
  if (error != 0) return Failed("write", error);
  not_started_ += bytes;
  if (not_started_ >= kSyncEvery) {
    ops_->StartSync(fd_);
    not_started_ = 0;
  }
  return {};
}

int AtomicFile::SetDirect(bool direct) {
  if (direct == direct_) return 0;
  const int error = ops_->SetDirect(fd_, direct);
  if (error == 0) direct_ = direct;
  return error;
}

bool AtomicFile::GoPastCache() {
  past_cache_ = SetDirect(true) == 0;
  return past_cache_;
}

Status AtomicFile::Write(std::span<const std::byte> data) {
  if (const int error = SetDirect(false)) return Failed("write", error);
  return Wrote(ops_->Write(fd_, data.data(), data.size()), data.size());
}

Status AtomicFile::WriteCachedAt(std::uint64_t offset, std::span<const std::byte> data) {
  if (data.empty()) return {};
  if (const int error = SetDirect(false)) return Failed("write", error);
  return Wrote(ops_->WriteAt(fd_, data.data(), data.size(), offset), data.size());
}

// Pages that are written in part go through the cache, where their parts meet.
Status AtomicFile::WriteAt(std::uint64_t offset, std::span<const std::byte> data) {
  const std::size_t behind = offset % kDirectBytes;
  const std::size_t head = std::min((kDirectBytes - behind) % kDirectBytes, data.size());
  const std::size_t pages = (data.size() - head) / kDirectBytes * kDirectBytes;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data.data()) % kDirectBytes == behind;
  if (!past_cache_ || !aligned || pages == 0) return WriteCachedAt(offset, data);
  PASSEL_RETURN_IF_ERROR(WriteCachedAt(offset, data.first(head)));
  int error = SetDirect(true);
  if (error == 0) error = ops_->WriteAt(fd_, data.data() + head, pages, offset + head);
  if (error == EINVAL) {  // this disk wants more
    past_cache_ = false;
    return WriteCachedAt(offset + head, data.subspan(head));
  }
  if (error != 0) return Failed("write", error);
  return WriteCachedAt(offset + head + pages, data.subspan(head + pages));
}

Status AtomicFile::Commit() {
  if (const int error = ops_->SyncFile(fd_)) return Failed("fsync", error);
  const char* step = "close";
  int error = ops_->Close(std::exchange(fd_, -1));
  if (!error && (error = ops_->Rename(temporary_, path_))) step = "rename";
  if (error) {
    (void)ops_->Unlink(temporary_);  // best effort: the first error is the one to report
    return Failed(step, error);
  }
  // The new file is in place; if the folder cannot be synced a power cut may bring the old back.
  if ((error = ops_->SyncDir(folder_))) {
    return ErrnoStatus(error, fmt::format("cannot fsync {}", folder_));
  }
  return {};
}

std::string_view TargetOfTemporary(std::string_view name) {
  const std::size_t end = name.rfind(kTemporary);
  if (end == std::string_view::npos) return {};
  std::string_view rest = name.substr(end + kTemporary.size());
  const std::size_t dot = rest.find('.');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (dot == std::string_view::npos || !is_number(rest.substr(0, dot)) ||
      !is_number(rest.substr(dot + 1))) {
    return {};
  }
  return name.substr(0, end);
}

Status WriteFileAtomically(const std::string& path,
                           std::span<const std::span<const std::byte>> pieces, FileOps& ops) {
  PASSEL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path, ops));
  for (const auto& piece : pieces) PASSEL_RETURN_IF_ERROR(file.Write(piece));
  return file.Commit();
}

}  // namespace passel
