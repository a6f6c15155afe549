#include "tools/passel/gpu_plugin.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace passel {

namespace {

constexpr const char* kName = "libpassel_cuda.so";

}  // namespace

Result<std::string> FindGpuPlugin() {
  namespace fs = std::filesystem;
  std::error_code error;
  if (const char* const set = std::getenv("PASSEL_BACKEND_PATH"); set != nullptr && *set != '\0') {
    const fs::path path(set);
    for (const fs::path& candidate : {path, path / kName}) {
      if (candidate.is_absolute() && fs::is_regular_file(candidate, error))
        return candidate.string();
    }
    return NotFound(
        fmt::format("the GPU code {} is not at PASSEL_BACKEND_PATH={}, which must be an "
                    "absolute path",
                    kName, set));
  }
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return NotFound(fmt::format("the GPU code {} cannot be looked for", kName));
  const fs::path here = self.parent_path();
  for (const fs::path& folder : {here, here.parent_path() / "lib"}) {
    if (fs::is_regular_file(folder / kName, error)) return (folder / kName).string();
  }
  return NotFound(fmt::format("the GPU code {} is neither in {} nor in {}", kName, here.string(),
                              (here.parent_path() / "lib").string()));
}

}  // namespace passel
