#include "io/folder_owner.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/fork_children.h"
#include "base/text.h"

namespace passel {
namespace {

constexpr std::size_t kMaxJobWord = 512;  // bytes
constexpr int kTries = 10;

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

// Those that were not there, the innermost first.
Result<std::vector<std::string>> MakeFolder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> missing;
  std::error_code error;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error);
       path = path.parent_path()) {
    if (path.has_filename()) missing.push_back(path);
  }
  fs::create_directories(folder, error);
  if (!error) return missing;
  return ErrnoStatus(error.value(),
                     fmt::format("cannot make the folder {} (name another, or make it)", folder));
}

// Folders only if they are empty.
void RemoveMade(const std::vector<std::string>& made) {
  std::error_code error;
  for (const std::string& path : made) {
    if (!std::filesystem::remove(path, error)) return;
  }
}

// `*made`: it was not there.
FileDescriptor OpenOwnerFile(const std::string& path, bool* made) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  FileDescriptor fd(::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666));
  *made = fd.valid();
  if (!fd.valid() && errno == EEXIST) fd.Reset(::open(path.c_str(), kFlags));
  KeepFromChildren(fd.get());  // the lock lives as long as the last of its descriptors
  return fd;
}

}  // namespace

Result<FolderOwner> FolderOwner::Become(const std::string& folder, std::string_view job,
                                        std::string* left) {
  for (int tries = 1;; ++tries) {
    Result<FolderOwner> owner = TryToBecome(folder, job, left);
    // A former owner may have taken file and folder away in between.
    bool gone = owner.status().code() == Code::kNotFound;
    if (owner.ok()) {
      PASSEL_ASSIGN_OR_RETURN(const bool owns, owner->Owns(folder));
      gone = !owns;
    }
    if (!gone) return owner;
    if (tries < kTries) continue;
    return Unavailable(fmt::format(
        "the folder {} comes and goes: other jobs begin and end there at this moment", folder));
  }
}

Result<FolderOwner> FolderOwner::TryToBecome(const std::string& folder, std::string_view job,
                                             std::string* left) {
  const std::string path = OwnerPath(folder);
  std::string mine = OneLine(job);
  PASSEL_ASSIGN_OR_RETURN(std::vector<std::string> made, MakeFolder(folder));
  bool is_new = false;
  FileDescriptor fd = OpenOwnerFile(path, &is_new);
  if (!fd.valid()) {
    const int error = errno;
    RemoveMade(made);
    return Cannot("opened", folder, error);
  }
  made.insert(made.begin(), path);
  if (!is_new) made.clear();
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  // Of the open file, not of the process: whatever else this process opens and closes there.
  const int locked = ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0 ? 0 : errno;
  if (locked != 0 && locked != EAGAIN && locked != EACCES) {
    RemoveMade(made);
    return Cannot("locked", folder, locked);
  }
  std::array<char, 2048> bytes = {};
  const ssize_t got = ::pread(fd.get(), bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  *left = LineOf(text, 2);
  if (locked == 0) return FolderOwner(folder, std::move(mine), std::move(fd), std::move(made));
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

// With the lock: who has opened the file, too, finds that it is no more there.
FolderOwner::~FolderOwner() {
  if (!fd_.valid() || made_.empty()) return;
  const Result<bool> owns = Owns(folder_);
  if (owns.ok() && *owns) RemoveMade(made_);
}

Result<bool> FolderOwner::Owns(const std::string& folder) const {
  struct stat held;
  const auto there = StatOf(OwnerPath(folder));
  if (!there) return false;
  if (::fstat(fd_.get(), &held) != 0) {
    if (errno == ESTALE) return false;  // NFS: somebody has removed the file
    return ErrnoStatus(errno, fmt::format("cannot look at {}", OwnerPath(folder)));
  }
  return held.st_dev == there->st_dev && held.st_ino == there->st_ino;
}

bool FolderOwner::IsOnSameDisk(const std::string& folder) const {
  struct stat held;
  const auto there = StatOf(folder);
  return there && ::fstat(fd_.get(), &held) == 0 && held.st_dev == there->st_dev;
}

}  // namespace passel
