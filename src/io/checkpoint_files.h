// checkpoint_files.h - the files of a folder of checkpoints, by their names alone.
// io/checkpoint_folder.h says which there are.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace passel {

inline constexpr const char* kIndexFile = "checkpoint";
inline constexpr const char* kBestFile = "best";
/// What the name of a part that was found broken ends with.
inline constexpr std::string_view kCorruptEnding = ".corrupt";

/// "model.ckpt-5000-00000-of-00003.safetensors", or "model.ckpt-5000.safetensors".
std::string PartName(std::string_view set, int part, int parts);

struct PartOfSet {
  std::string set;  ///< "model.ckpt-5000"
  int part = 0, parts = 1;
};
/// Nothing for a name that PartName() does not give.
std::optional<PartOfSet> ParsePartName(std::string_view file);

/// Whether a file of that name is a part, or one of the two indices.
bool IsCheckpointFile(std::string_view file);

/// "folder/name".
std::string InFolder(const std::string& folder, std::string_view name);
/// Of "folder/name"; {".", path} where there is no folder.
std::pair<std::string, std::string> FolderAndName(const std::string& path);

/// The names of everything in it. Errors: those of the system.
Result<std::vector<std::string>> FilesIn(const std::string& folder);

}  // namespace passel
