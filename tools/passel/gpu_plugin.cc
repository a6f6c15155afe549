#include "tools/passel/gpu_plugin.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "compute/accelerator_loader.h"

namespace passel {

Result<std::string> FindGpuPlugin() {
  PASSEL_ASSIGN_OR_RETURN(std::string path, FindAcceleratorPlugin());
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return path;
  return NotFound(fmt::format("the GPU plugin {} is not there: correct PASSEL_BACKEND_PATH", path));
}

}  // namespace passel
