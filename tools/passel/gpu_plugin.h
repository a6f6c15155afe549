// gpu_plugin.h - whether this installation has GPU code at all, asked before GPUs are.

#pragma once

#include <string>

#include "base/status.h"

namespace passel {

/// The file that FindAcceleratorPlugin() names, if it is there. It is not opened: who starts
/// workers must not have it in memory. Errors: also kNotFound.
Result<std::string> FindGpuPlugin();

}  // namespace passel
