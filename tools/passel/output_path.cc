#include "tools/passel/output_path.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"

namespace passel {

Status CheckOutputPath(const char* flag, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string dir = slash == std::string::npos ? "."
                          : slash == 0               ? "/"
                                                     : path.substr(0, slash);
  struct stat info;
  if (name.empty() || name == "." || name == ".." ||
      (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))) {
    return InvalidArgument(fmt::format("{} {} is a directory: name a file in it", flag, path));
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

}  // namespace passel
