#include "job/output_path.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/file_descriptor.h"

namespace passel::job {

Status CheckOutputPath(const char* flag, const std::string& path) {
  if (const Status status = CheckReplaceable(path); !status.ok()) {
    return InvalidArgument(fmt::format("{} {}", flag, status.message()));
  }
  if (std::error_code error; std::filesystem::is_symlink(path, error)) {
    return InvalidArgument(fmt::format(
        "{} {} is a symbolic link, which would be replaced: name the file itself", flag, path));
  }
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string dir = slash == std::string::npos ? "."
                          : slash == 0               ? "/"
                                                     : path.substr(0, slash);
  if (name.empty() || name == "." || name == "..") {
    return InvalidArgument(fmt::format("{} {} is a directory: name a file in it", flag, path));
  }
  // What is written first has the longest name (base/file.h).
  constexpr long kSuffix = 32;  // bytes of ".tmp.<process id>.<number>", at most
  const long most = ::pathconf(dir.c_str(), _PC_NAME_MAX);
  if (most > 0 && static_cast<long>(name.size()) > most - kSuffix) {
    return InvalidArgument(
        fmt::format("the file name of {} has {} bytes, and at most {} can be written in {}: use a "
                    "shorter one",
                    flag, name.size(), most - kSuffix, dir));
  }
  const auto cannot = [&](int error) {
    return InvalidArgument(
        fmt::format("{} {} cannot be written, since {} says \"{}\": use another path", flag, path,
                    dir, std::strerror(error)));
  };
  if (FileDescriptor(::open(dir.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)).valid())
    return {};
  // Some file systems know no file without a name.
  if (errno != EOPNOTSUPP && errno != EISDIR) return cannot(errno);
  const std::string probe = fmt::format("{}/.passel.{}.tmp", dir, ::getpid());
  if (!FileDescriptor(::open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600))
           .valid()) {
    return cannot(errno);
  }
  ::unlink(probe.c_str());
  return {};
}

Status CheckDifferentFiles(const char* flag, const std::string& path, const char* other_flag,
                           const std::string& other) {
  if (path.empty() || other.empty()) return {};
  std::error_code error;
  const auto one = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  const auto two = std::filesystem::weakly_canonical(std::filesystem::absolute(other), error);
  if (one != two) return {};
  return InvalidArgument(
      fmt::format("{} and {} both name {}: use two files", flag, other_flag, path));
}

}  // namespace passel::job
