#include "io/folder_owner.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace passel {
namespace {

constexpr std::size_t kMaxJobWord = 512;  // bytes

std::string OwnerPath(const std::string& folder) {
  return fmt::format("{}{}{}", folder, folder.ends_with('/') ? "" : "/", kOwnerFile);
}

Status Cannot(const char* what, const std::string& folder, int error) {
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

// Line `k` of a text, without its end; "" if there is none.
std::string_view LineOf(std::string_view text, int k) {
  for (; k > 0; --k) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

std::string OneLine(std::string_view job) {
  std::string line(job.substr(0, kMaxJobWord));
  std::ranges::replace(line, '\n', ' ');
  return line;
}

std::optional<struct stat> StatOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  return info;
}

}  // namespace

Result<FolderOwner> FolderOwner::Become(const std::string& folder, std::string_view job,
                                        std::string* left) {
  const std::string path = OwnerPath(folder);
  std::string mine = OneLine(job);
  FileDescriptor fd(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!fd.valid()) return Cannot("opened", folder, errno);
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  // Of the open file, not of the process: whatever else this process opens and closes there.
  const int locked = ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0 ? 0 : errno;
  if (locked != 0 && locked != EAGAIN && locked != EACCES) return Cannot("locked", folder, locked);
  std::array<char, 2048> bytes = {};
  const ssize_t got = ::pread(fd.get(), bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  *left = LineOf(text, 2);
  if (locked == 0) return FolderOwner(folder, std::move(mine), std::move(fd));
  const std::string_view who = LineOf(text, 0);
  const std::string owner = who.empty() ? "another job" : Printable(who, 128);
  if (!mine.empty() && LineOf(text, 1) == mine) {
    return Unavailable(fmt::format(
        "{} is still the checkpoint folder of {}, another life of this job", folder, owner));
  }
  return AlreadyExists(fmt::format(
      "{} is the checkpoint folder of {}, which is running: stop it first, or name another", folder,
      owner));
}

Status FolderOwner::Say(std::string_view saving) const {
  std::array<char, 256> host = {};
  (void)::gethostname(host.data(), host.size() - 1);
  const std::string who =
      fmt::format("process {} on {}\n{}\n{}", ::getpid(), host.data(), job_, saving);
  if (::pwrite(fd_.get(), who.data(), who.size(), 0) != static_cast<ssize_t>(who.size()) ||
      ::ftruncate(fd_.get(), static_cast<off_t>(who.size())) != 0) {
    return Cannot("written", folder_, errno);
  }
  // After a crash of the machine, too, the next owner must know what was unfinished.
  if (!saving.empty() && ::fdatasync(fd_.get()) != 0) return Cannot("written", folder_, errno);
  return {};
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
