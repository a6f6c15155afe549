#include <dlfcn.h>
#include <fmt/core.h>
#include <limits.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>

#include "fabric/bulk_network.h"

namespace passel::fabric {
namespace {

// What constructors of a library do to the handlers of signals is undone.
class KeptSignals {
 public:
  KeptSignals() {
    for (int signal = 1; signal < kSignals; ++signal) {
      known_[static_cast<std::size_t>(signal)] =
          ::sigaction(signal, nullptr, &actions_[static_cast<std::size_t>(signal)]) == 0;
    }
  }
  ~KeptSignals() {
    for (int signal = 1; signal < kSignals; ++signal) {
      const auto at = static_cast<std::size_t>(signal);
      if (known_[at]) (void)::sigaction(signal, &actions_[at], nullptr);
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr int kSignals = 32;
  std::array<struct sigaction, kSignals> actions_{};
  std::array<bool, kSignals> known_{};
};

Result<std::string> LibraryPath() {
  char program[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return ErrnoStatus(errno, "reading the link /proc/self/exe");
  std::string_view folder(program, static_cast<std::size_t>(length));
  folder = folder.substr(0, folder.rfind('/'));
  return fmt::format("{}/{}/libpassel_fabric.so", folder, PASSEL_PLUGIN_FOLDER);
}

}  // namespace

Result<std::shared_ptr<BulkNetwork>> LoadBulkNetwork(const BulkOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const std::string path, LibraryPath());
  if (::access(path.c_str(), F_OK) != 0) {
    return InvalidArgument(
        fmt::format("--fabric_provider {} needs libfabric, and this build of passel has been made "
                    "without it (there is no {}): build it where libfabric-dev is installed, or "
                    "omit the flag",
                    options.provider, path));
  }
  const KeptSignals kept;
  // Never unloaded: threads and handlers of its own may go on.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return InvalidArgument(
        fmt::format("--fabric_provider {} needs libfabric, which cannot be loaded here ({}): "
                    "install libfabric1, or omit the flag",
                    options.provider, ::dlerror()));
  }
  void* const symbol = ::dlsym(library, PASSEL_FABRIC_ENTRY_NAME);
  if (symbol == nullptr) {
    return InvalidArgument(
        fmt::format("{} is of another build than this program: build both together", path));
  }
  BulkEntry entry = nullptr;
  static_assert(sizeof entry == sizeof symbol);
  std::memcpy(&entry, &symbol, sizeof entry);
  Result<std::unique_ptr<BulkNetwork>> made = Unavailable("");
  entry(options, &made);
  if (!made.ok()) {
    return InvalidArgument(
        fmt::format("--fabric_provider {}: {}", options.provider, made.status().message()));
  }
  return std::shared_ptr<BulkNetwork>(std::move(*made));
}

}  // namespace passel::fabric
