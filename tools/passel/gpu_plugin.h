// gpu_plugin.h - where the GPU code is: a library of its own, which not every machine has.

#pragma once

#include <string>

#include "base/status.h"

namespace passel {

/// The absolute path of libpassel_cuda.so: in $PASSEL_BACKEND_PATH (its directory, or the file) if
/// that is set, else beside the program or in ../lib of its directory; never in the current
/// directory. It is not opened. Errors: kNotFound, naming the places.
Result<std::string> FindGpuPlugin();

}  // namespace passel
