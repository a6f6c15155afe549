#include "cluster/token_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace passel {
namespace {

constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

// Does `path` lead to the open file?
bool IsAt(int fd, const std::string& path) {
  struct stat open_file;
  struct stat named;
  return ::fstat(fd, &open_file) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

bool TryLock(int fd, int operation) {
  int result;
  do {
    result = ::flock(fd, operation | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

Result<TokenFile> TokenFile::Join(const std::string& path, Deadline deadline) {
  for (;;) {
    FileDescriptor fd(::open(path.c_str(), kOpenFlags));
    if (!fd.valid()) {
      if (errno != ENOENT) {
        return ErrnoStatus(errno, fmt::format("cannot open the token file {}", path));
      }
      PASSEL_ASSIGN_OR_RETURN(JobToken::NewFile made, JobToken::Create(path, true));
      if (made.fd.valid()) return TokenFile(path, std::move(made.fd), made.token);
      continue;  // another task was faster
    }
    PASSEL_RETURN_IF_ERROR(JobToken::CheckFile(fd.get(), path));
    if (TryLock(fd.get(), LOCK_EX)) {
      // Nobody who lives holds it. The next turn makes a new one.
      if (IsAt(fd.get(), path) && ::unlink(path.c_str()) != 0) {
        return ErrnoStatus(errno, fmt::format("cannot replace the stale token file {}", path));
      }
      continue;
    }
    if (TryLock(fd.get(), LOCK_SH)) {
      if (!IsAt(fd.get(), path)) continue;
      PASSEL_ASSIGN_OR_RETURN(const JobToken token, JobToken::Read(path));
      if (IsAt(fd.get(), path)) return TokenFile(path, std::move(fd), token);
      continue;
    }
    if (deadline.Expired()) {
      return DeadlineExceeded(fmt::format(
          "another process keeps the token file {} locked: end it, or use --token_file", path));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  if (this == &other) return *this;
  Leave();
  path_ = std::move(other.path_);
  fd_ = std::move(other.fd_);
  token_ = other.token_;
  return *this;
}

TokenFile::~TokenFile() { Leave(); }

void TokenFile::Leave() {
  if (fd_.valid() && TryLock(fd_.get(), LOCK_EX)) Remove();
  fd_.Reset();
}

void TokenFile::Remove() {
  if (fd_.valid() && IsAt(fd_.get(), path_)) ::unlink(path_.c_str());
}

void RemoveStaleTokenFiles(const std::string& dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string path = entry.path();
    if (!path.ends_with(kTokenFileEnding)) continue;
    const FileDescriptor fd(::open(path.c_str(), kOpenFlags));
    if (!fd.valid() || !JobToken::CheckFile(fd.get(), path).ok()) continue;
    // Whoever begins to use it right now sees that it has no name any more, and makes another.
    if (TryLock(fd.get(), LOCK_EX) && IsAt(fd.get(), path)) ::unlink(path.c_str());
  }
}

}  // namespace passel
