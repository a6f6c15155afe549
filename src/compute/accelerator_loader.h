// accelerator_loader.h - finds libpassel_cuda.so, checks that it is of this build, and opens a GPU.
//
// Where       $PASSEL_BACKEND_PATH, the absolute path of the plugin or of its folder, if it is set:
//             then nowhere else. Otherwise lib/passel beside the folder of the running program (the
//             same in a build tree and when installed). Never the working directory.
// Whose       The plugin's file belongs to root, to this user or to the owner of the program, and
//             not everybody may write to it.
// Life        A plugin that was loaded stays; loading it again gives the same one.
// Threads     May be called by several.

#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "compute/accelerator.h"

namespace passel {

inline constexpr const char* kAcceleratorLibrary = "libpassel_cuda.so";

/// The path of a file that is there; whether it can be loaded is not said. Errors: kInvalidArgument
/// for a relative $PASSEL_BACKEND_PATH; kNotFound, naming the path looked at and the remedy.
Result<std::string> FindAcceleratorPlugin();

/// Loads the plugin at an absolute path. It logs through this program's log.
/// Errors: kNotFound; kPermissionDenied for somebody else's file; kFailedPrecondition for a file
/// that cannot be loaded, is no plugin, or is one of another build.
Result<const AcceleratorPlugin*> LoadAcceleratorPlugin(const std::string& path);

/// Find, load, open. Errors: those of both and of AcceleratorPlugin::open.
Result<std::unique_ptr<Accelerator>> OpenAccelerator(const AcceleratorOptions& options);

}  // namespace passel
