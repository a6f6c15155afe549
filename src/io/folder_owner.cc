#include "io/folder_owner.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace passel {
namespace {

std::string OwnerPath(const std::string& folder) {
  return fmt::format("{}{}{}", folder, folder.ends_with('/') ? "" : "/", kOwnerFile);
}

Status Cannot(const char* what, const std::string& folder) {
  const int error = errno;
  if (error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL) {
    return FailedPrecondition(fmt::format(
        "{} cannot get checkpoints, since .owner in it cannot be {} ({}): name a folder "
        "on a file system that has locks",
        folder, what, std::strerror(error)));
  }
  return ErrnoStatus(error, fmt::format("{} cannot get checkpoints (let this user write there, or "
                                        "name another folder), since .owner in it cannot be {}",
                                        folder, what));
}

std::optional<struct stat> StatOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  return info;
}

}  // namespace

Result<FolderOwner> FolderOwner::Become(const std::string& folder) {
  const std::string path = OwnerPath(folder);
  FileDescriptor fd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!fd.valid()) return Cannot("opened", folder);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  // Of the open file, not of the process: whatever else this process opens and closes there.
  if (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) return Cannot("locked", folder);
    std::array<char, 128> who = {};
    const ssize_t got = ::pread(fd.get(), who.data(), who.size() - 1, 0);
    return AlreadyExists(fmt::format(
        "{} is the checkpoint folder of {}, which is running: stop it first, or name another",
        folder,
        got > 0 ? Printable(std::string_view(who.data(), static_cast<std::size_t>(got)), 128)
                : "another job"));
  }
  std::array<char, 256> host = {};
  (void)::gethostname(host.data(), host.size() - 1);
  const std::string who = fmt::format("process {} on {}", ::getpid(), host.data());
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), who.data(), who.size(), 0) != static_cast<ssize_t>(who.size())) {
    return Cannot("written", folder);
  }
  return FolderOwner(std::move(fd));
}

bool FolderOwner::Owns(const std::string& folder) const {
  struct stat held;
  const auto there = StatOf(OwnerPath(folder));
  return there && ::fstat(fd_.get(), &held) == 0 && held.st_dev == there->st_dev &&
         held.st_ino == there->st_ino;
}

bool FolderOwner::IsOnSameDisk(const std::string& folder) const {
  struct stat held;
  const auto there = StatOf(folder);
  return there && ::fstat(fd_.get(), &held) == 0 && held.st_dev == there->st_dev;
}

}  // namespace passel
