#include "job/output_path.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/file_descriptor.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_index.h"

namespace passel::job {
namespace {

// "" if the working directory is gone and the path is relative to it.
std::filesystem::path Canonical(const std::string& path) {
  std::error_code error;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
}

}  // namespace

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
  const std::filesystem::path one = Canonical(path);
  if (one.empty() || one != Canonical(other)) return {};
  return InvalidArgument(
      fmt::format("{} and {} both name {}: use two files", flag, other_flag, path));
}

Status CheckNoCheckpointFile(const char* flag, const std::string& path, const std::string& folder) {
  if (path.empty()) return {};
  const std::filesystem::path file = Canonical(path);
  const std::string name = file.filename().string();
  const auto is_its = [&](const std::filesystem::path& of) { return file.parent_path() == of; };
  const bool is_folder = !folder.empty() && is_its(Canonical(folder + "/checkpoint").parent_path());
  std::error_code ignored;
  const bool has_some =
      is_folder || std::filesystem::exists(file.parent_path() / kIndexFile, ignored);
  if (!ParsePartName(name) && !(has_some && IsOfCheckpoints(name))) return {};
  return InvalidArgument(
      fmt::format("{} {} is the name of a checkpoint's file, which this is none: use another name",
                  flag, path));
}

}  // namespace passel::job
