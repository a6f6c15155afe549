// checkpoint_export.h - the values of a checkpoint as one file for other programs.
//
// Thread safety: no state.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "job/stored_tensors.h"

namespace passel::job {

/// Whether a result may be written there: it is no file of `paths`, and has not the name of a
/// checkpoint. Errors: kInvalidArgument.
Status CheckNoCheckpoint(const char* flag, const std::string& file,
                         const std::vector<std::string>& paths);

/// Whether values can be written there, asked before anything is read. Errors: kInvalidArgument for
/// a name that ends with neither .safetensors nor .npz, for that of a checkpoint, and as
/// CheckOutputPath().
Status CheckExportPath(const std::string& path);

/// What it writes beside the values of the variables.
enum class Export { kValuesAlone, kSlotsToo };

/// Replaces `path` atomically. A .safetensors file is one that LoadModel() takes; an .npz file is
/// for numpy.load(). Errors: kInvalidArgument if it is a file of `stored`; those of reading and
/// writing.
Status ExportValues(const StoredTensors& stored, const std::string& path, Export what);

}  // namespace passel::job
