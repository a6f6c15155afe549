#include "data/locate.h"

#include <fmt/core.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "base/file.h"
#include "data/data_source.h"
#include "data/digits.h"
#include "data/formats.h"

namespace passel {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kGeneratedSeed = 1;
constexpr double kRetrySeconds = 3600;      // after a failed download
constexpr double kAbandonedSeconds = 3600;  // then a temporary folder belongs to nobody

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Seconds since `path` was changed; nothing if it is not there or lies in the future.
std::optional<double> AgeSeconds(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  const double age = WallSeconds() - (static_cast<double>(info.st_mtim.tv_sec) +
                                      1e-9 * static_cast<double>(info.st_mtim.tv_nsec));
  if (age < 0) return std::nullopt;
  return age;
}

bool HasFourFiles(const std::string& dir) {
  const auto files = FindData(dir);
  return files.ok() && files->format->usual;
}

// What else there is to say about the files: " (npz, the very file that Keras downloads)".
std::string Describe(const DataFiles& files) {
  const DataFormat& format = *files.format;
  if (format.usual) return "";
  const std::string_view note = format.note != nullptr ? format.note(files.paths[0]) : "";
  return fmt::format(" ({}{}{})", format.name, note.empty() ? "" : ", ", note);
}

Result<DataLocation> UseIfReadable(const std::string& dir, DataOrigin origin,
                                   std::string_view reason, std::string_view context) {
  const auto files = CheckData(dir);
  if (!files.ok()) return files.status().WithContext(context);
  return DataLocation{dir, origin,
                      fmt::format("Using the data in {}{}, {}.", dir, Describe(*files), reason)};
}

// Folders that a killed process left on its way to `final_dir`.
void RemoveAbandoned(const std::string& parent, const std::string& prefix) {
  std::error_code ignored;  // at worst they stay
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const std::string path = entry.path().string();
    if (AgeSeconds(path).value_or(0) > kAbandonedSeconds) fs::remove_all(path, ignored);
  }
}

// Makes `cache`/generated-digits-v<version> and returns its path.
Result<std::string> GeneratedDigits(const std::string& cache, const LocateOptions& options) {
  const std::string name = fmt::format("generated-digits-v{}", kDigitsVersion);
  const std::string dir = fmt::format("{}/{}", cache, name);
  if (CheckData(dir).ok()) return dir;
  PASSEL_RETURN_IF_ERROR(MakeDirectories(cache));
  struct stat info;
  if (::stat(dir.c_str(), &info) == 0) {
    // There, but damaged. Every writer writes the same bytes and replaces whole files, so repairing
    // it in place is safe, however many do it.
    PASSEL_RETURN_IF_ERROR(
        WriteGeneratedDigits(dir, options.generated_train, options.generated_test, kGeneratedSeed));
    return dir;
  }
  RemoveAbandoned(cache, name + ".tmp.");
  std::string temporary = fmt::format("{}.tmp.XXXXXX", dir);
  if (::mkdtemp(temporary.data()) == nullptr) {
    return ErrnoStatus(errno, fmt::format("cannot create a folder in {}", cache));
  }
  Status status = WriteGeneratedDigits(temporary, options.generated_train, options.generated_test,
                                       kGeneratedSeed);
  if (status.ok() && std::rename(temporary.c_str(), dir.c_str()) == 0) return dir;
  const int error = errno;
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  PASSEL_RETURN_IF_ERROR(status);
  // Somebody else was first: theirs is as good.
  if (CheckData(dir).ok()) return dir;
  return ErrnoStatus(error, fmt::format("cannot rename {} to {}", temporary, dir));
}

// Downloads MNIST, unless that failed lately; then the error says so.
Status DownloadUnlessFailedLately(const std::string& cache, const LocateOptions& options) {
  const std::string marker = fmt::format("{}/mnist-download-failed", cache);
  if (options.allow_generated && !options.always_download) {
    if (const auto age = AgeSeconds(marker); age && *age < kRetrySeconds) {
      return Unavailable(
          fmt::format("it failed {:.0f} minutes ago and is tried again after {:.0f}, "
                      "or at once when {} is removed",
                      *age / 60, kRetrySeconds / 60, marker));
    }
  }
  const Status status = DownloadFiles(fmt::format("{}/mnist", cache), options.download);
  if (status.ok()) {
    ::unlink(marker.c_str());
  } else if (options.allow_generated && !options.always_download) {
    const std::string text = status.ToString() + "\n";
    const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(text))};
    // Best effort: without the marker the next start tries again, that is all.
    if (MakeDirectories(cache).ok()) (void)WriteFileAtomically(marker, pieces);
  }
  return status;
}

}  // namespace

Result<std::string> DataCacheDir() {
  // The XDG rules: a relative path counts as unset.
  if (const std::string xdg = Env("XDG_CACHE_HOME"); xdg.starts_with('/')) return xdg + "/passel";
  if (const std::string home = Env("HOME"); home.starts_with('/')) return home + "/.cache/passel";
  // A service or a container may have no HOME: what the password file says.
  passwd entry;
  passwd* found = nullptr;
  std::array<char, 4096> text;
  if (Env("HOME").empty() &&
      ::getpwuid_r(::getuid(), &entry, text.data(), text.size(), &found) == 0 && found != nullptr &&
      found->pw_dir != nullptr && found->pw_dir[0] == '/' && ::access(found->pw_dir, W_OK) == 0) {
    return std::string(found->pw_dir) + "/.cache/passel";
  }
  return FailedPrecondition(
      "there is no place to keep data, because neither XDG_CACHE_HOME nor HOME is an absolute "
      "path, and this user has no home directory to write to: set one of them, or name a directory "
      "with data (--data_dir)");
}

namespace {

// Why nothing can be put into `dir`, or into a folder of that name if it is made; "" if it can, as
// far as can be told without making it.
std::string WhyNotWritable(const std::string& dir) {
  std::string part = dir;
  struct stat info;
  while (::stat(part.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoStatus(errno, "cannot look at " + part).message();
    const std::size_t slash = part.rfind('/');
    part.resize(std::max<std::size_t>(slash, 1));
  }
  if (::access(part.c_str(), W_OK | X_OK) == 0) return "";
  return ErrnoStatus(errno, "cannot write to " + part).message();
}

Status NoPlace(const std::string& cache, std::string_view why) {
  return FailedPrecondition(
      fmt::format("no data was found, and {} cannot keep any ({}): name a directory with data "
                  "(--data_dir), or set XDG_CACHE_HOME to one that can be written to",
                  cache, why));
}

std::string Servers(const DownloadOptions& download) {
  std::string text = download.base_url;
  for (const std::string& mirror : download.mirrors) text += " or " + mirror;
  return text;
}

// Nobody named a directory.
Result<DataLocation> SearchData(const LocateOptions& options) {
  if (HasFourFiles(options.shared_dir)) {
    return UseIfReadable(options.shared_dir, DataOrigin::kShared,
                         "which is there and nothing else was asked for",
                         "data found without being asked for (name another with --data_dir)");
  }
  PASSEL_ASSIGN_OR_RETURN(const std::string cache, DataCacheDir());
  const std::string mnist = fmt::format("{}/mnist", cache);
  constexpr const char* kDamaged = "the data cache is damaged (remove that file)";
  if (HasFourFiles(mnist)) {
    return UseIfReadable(mnist, DataOrigin::kCache, "MNIST from the cache", kDamaged);
  }
  const std::string unwritable = WhyNotWritable(cache);
  const Status download = unwritable.empty() ? DownloadUnlessFailedLately(cache, options)
                                             : Unavailable("nothing can be kept: " + unwritable);
  if (download.ok()) {
    return UseIfReadable(mnist, DataOrigin::kDownloaded,
                         fmt::format("MNIST, downloaded from {}", Servers(options.download)),
                         kDamaged);
  }
  if (!options.allow_generated && !unwritable.empty()) return NoPlace(cache, unwritable);
  if (!options.allow_generated) return download.WithContext("MNIST cannot be downloaded");
  const Result<std::string> generated = GeneratedDigits(cache, options);
  if (!generated.ok()) {
    return NoPlace(cache, unwritable.empty() ? generated.status().message() : unwritable);
  }
  return DataLocation{
      *generated, DataOrigin::kGenerated,
      fmt::format("Using digits drawn by a program, not MNIST, from {}, because MNIST was not "
                  "downloaded ({}); name a directory with data (--data_dir) to use that instead.",
                  *generated, download.message())};
}

}  // namespace

Result<DataLocation> LocateData(const LocateOptions& options) {
  if (!options.data_dir.empty()) {
    return UseIfReadable(options.data_dir, DataOrigin::kArgument, "as --data_dir says",
                         "--data_dir");
  }
  if (const std::string dir = Env("PASSEL_DATA_DIR"); !dir.empty()) {
    return UseIfReadable(dir, DataOrigin::kEnvironment, "as PASSEL_DATA_DIR says",
                         "PASSEL_DATA_DIR");
  }
  std::string no_usual;
  if (!options.usual_dir.empty()) {
    const auto usual = FindData(options.usual_dir);
    if (usual.ok()) {
      return UseIfReadable(options.usual_dir, DataOrigin::kUsual,
                           fmt::format("where {} has it", options.usual_for), options.usual_for);
    }
    no_usual =
        fmt::format(" (Not the data of {}: {}.)", options.usual_for, usual.status().message());
  }
  PASSEL_ASSIGN_OR_RETURN(DataLocation location, SearchData(options));
  location.why += no_usual;
  return location;
}

Result<DataLocation> EnsureData(const LocateOptions& options) {
  LocateOptions real = options;
  real.allow_generated = false;
  if (options.data_dir.empty()) return LocateData(real);
  const auto found = FindData(options.data_dir);
  // A path that names a file which is not there is a mistake, and no folder to be made.
  if (found.ok() || found.status().code() != Code::kNotFound || HasDataEnding(options.data_dir)) {
    return LocateData(real);
  }
  DownloadOptions open = options.download;
  open.folder_mode = 0777;  // the user's own folder, and the user's umask
  const Status download = DownloadFiles(options.data_dir, open);
  if (!download.ok()) return download.WithContext("MNIST cannot be downloaded");
  return UseIfReadable(options.data_dir, DataOrigin::kDownloaded,
                       fmt::format("MNIST, downloaded from {}", Servers(options.download)),
                       "--data_dir");
}

}  // namespace passel
