#include "compute/accelerator_loader.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "compute/build_id.h"

namespace passel {
namespace {

constexpr const char* kVariable = "PASSEL_BACKEND_PATH";

void HostLogInfo(const char* text) { LogLine(LogLevel::kInfo, text); }
void HostLogWarning(const char* text) { LogLine(LogLevel::kWarning, text); }

// Lives for ever: plugins keep its address.
const AcceleratorHost& Host() {
  static const AcceleratorHost host = [] {
    AcceleratorHost h;
    h.build_id = BuildId();
    h.log_info = HostLogInfo;
    h.log_warning = HostLogWarning;
    return h;
  }();
  return host;
}

bool IsDirectory(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// The folder of the running program, without symbolic links.
Result<std::string> ProgramFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return ErrnoStatus(errno, "reading the link /proc/self/exe");
  const std::string_view program(path, static_cast<std::size_t>(length));
  return std::string(program.substr(0, program.rfind('/')));
}

// Whoever can write to a plugin runs code as us.
Status CheckFile(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) {
    return NotFound(
        fmt::format("the GPU plugin {} cannot be read ({}): build or install it, or "
                    "correct {}",
                    path, std::strerror(errno), kVariable));
  }
  if (!S_ISREG(file.st_mode)) {
    return FailedPrecondition(
        fmt::format("the GPU plugin {} is not a regular file: correct {}", path, kVariable));
  }
  struct stat program {};
  const bool known = stat("/proc/self/exe", &program) == 0;
  if (file.st_uid != 0 && file.st_uid != geteuid() && !(known && file.st_uid == program.st_uid)) {
    return PermissionDenied(
        fmt::format("the GPU plugin {} belongs to user {}, neither to root nor to user {} nor to "
                    "the owner of this program: install it again, or chown it",
                    path, file.st_uid, geteuid()));
  }
  if ((file.st_mode & S_IWOTH) != 0) {
    return PermissionDenied(fmt::format(
        "the GPU plugin {} may be written to by everybody (mode {:04o}): run chmod o-w on it", path,
        file.st_mode & 07777));
  }
  return {};
}

Result<AcceleratorPlugin> Load(const std::string& path) {
  PASSEL_RETURN_IF_ERROR(CheckFile(path));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPrecondition(fmt::format(
        "the GPU plugin {} cannot be loaded ({}): build it on this machine", path, dlerror()));
  }
  // Code that was loaded may have started threads or registered exit handlers: it is never
  // unloaded, not even when it is refused.
  void* symbol = dlsym(library, kAcceleratorSymbol);
  if (symbol == nullptr) {
    return FailedPrecondition(fmt::format("{} is no GPU plugin of passel: it has no function {}",
                                          path, kAcceleratorSymbol));
  }
  AcceleratorEntry entry = nullptr;
  static_assert(sizeof entry == sizeof symbol);
  std::memcpy(&entry, &symbol, sizeof entry);
  AcceleratorPlugin plugin;
  const int refused = entry(&Host(), &plugin);
  // Only the first three members of another ABI may be looked at.
  const std::string_view id = plugin.build_id == nullptr ? "unknown" : plugin.build_id;
  if (plugin.abi != kAcceleratorAbi || plugin.size != sizeof(AcceleratorPlugin)) {
    return FailedPrecondition(fmt::format(
        "the GPU plugin {} speaks version {} of the interface ({} bytes), this program version {} "
        "({} bytes): build both together",
        path, plugin.abi, plugin.size, kAcceleratorAbi, sizeof(AcceleratorPlugin)));
  }
  if (refused != 0 || id != BuildId()) {
    return FailedPrecondition(
        fmt::format("the GPU plugin {} is of build {}, this program of build {}: build both "
                    "together",
                    path, id, BuildId()));
  }
  if (plugin.open == nullptr) {
    return FailedPrecondition(
        fmt::format("the GPU plugin {} has no function to open a device: build it again", path));
  }
  return plugin;
}

}  // namespace

Result<std::string> FindAcceleratorPlugin() {
  if (const char* set = std::getenv(kVariable); set != nullptr) {
    std::string path = set;
    if (path.empty() || path.front() != '/') {
      return InvalidArgument(
          fmt::format("{} is '{}', but it must be the absolute path of {} or of its folder: "
                      "correct or unset it",
                      kVariable, path, kAcceleratorLibrary));
    }
    if (IsDirectory(path)) path = fmt::format("{}/{}", path, kAcceleratorLibrary);
    if (access(path.c_str(), F_OK) != 0) {
      return NotFound(
          fmt::format("there is no GPU plugin {}: correct or unset {}", path, kVariable));
    }
    return path;
  }
  PASSEL_ASSIGN_OR_RETURN(const std::string folder, ProgramFolder());
  const std::filesystem::path place(
      fmt::format("{}/{}/{}", folder, PASSEL_PLUGIN_FOLDER, kAcceleratorLibrary));
  std::string path = place.lexically_normal();
  if (access(path.c_str(), F_OK) != 0) {
    return NotFound(
        fmt::format("there is no GPU plugin {}: build passel where nvcc {} or newer is (see "
                    "docs/gpus.md), or name the plugin in {}",
                    path, PASSEL_CUDA_MIN_NVCC, kVariable));
  }
  return path;
}

Result<const AcceleratorPlugin*> LoadAcceleratorPlugin(const std::string& path) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, AcceleratorPlugin>;
  if (path.empty() || path.front() != '/') {
    return InvalidArgument(
        fmt::format("the path '{}' of a GPU plugin must be an absolute one", path));
  }
  const std::lock_guard lock(mutex);
  auto found = loaded->find(path);
  if (found == loaded->end()) {
    PASSEL_ASSIGN_OR_RETURN(AcceleratorPlugin plugin, Load(path));
    found = loaded->emplace(path, plugin).first;
  }
  return &found->second;
}

Result<std::unique_ptr<Accelerator>> OpenAccelerator(const AcceleratorOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const std::string path, FindAcceleratorPlugin());
  PASSEL_ASSIGN_OR_RETURN(const AcceleratorPlugin* plugin, LoadAcceleratorPlugin(path));
  return plugin->open(options);
}

}  // namespace passel
