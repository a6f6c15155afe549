#include "io/checkpoint_files.h"

#include <dirent.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "io/checkpoint_index.h"

namespace passel {
namespace {

constexpr std::string_view kPartEnding = ".safetensors";

}  // namespace

std::string PartName(std::string_view set, int part, int parts) {
  return parts == 1 ? fmt::format("{}{}", set, kPartEnding)
                    : fmt::format("{}-{:05}-of-{:05}{}", set, part, parts, kPartEnding);
}

std::optional<PartOfSet> ParsePartName(std::string_view file) {
  const std::size_t dash = file.find('-');
  if (dash == std::string_view::npos) return {};
  PartOfSet name;
  name.set = file.substr(0, file.find_first_not_of("0123456789", dash + 1));
  if (!StepOfCheckpoint(name.set)) return {};
  const std::string rest(file.substr(name.set.size()));
  if (rest != kPartEnding &&
      std::sscanf(rest.c_str(), "-%5d-of-%5d", &name.part, &name.parts) != 2) {
    return {};
  }
  if (name.part < 0 || name.part >= name.parts) return {};
  if (file != PartName(name.set, name.part, name.parts)) return {};
  return name;
}

bool IsCheckpointFile(std::string_view file) {
  return file == kIndexFile || file == kBestFile || ParsePartName(file);
}

std::pair<std::string, std::string> FolderAndName(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::string InFolder(const std::string& folder, std::string_view name) {
  return fmt::format("{}{}{}", folder, folder.ends_with('/') ? "" : "/", name);
}

Result<std::vector<std::string>> FilesIn(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
  if (!dir) return ErrnoStatus(errno, fmt::format("cannot list {}", folder));
  std::vector<std::string> names;
  for (errno = 0; const dirent* entry = ::readdir(dir.get()); errno = 0) {
    names.emplace_back(entry->d_name);
  }
  if (errno != 0) return ErrnoStatus(errno, fmt::format("cannot list {}", folder));
  return names;
}

}  // namespace passel
