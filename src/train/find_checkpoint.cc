#include "train/checkpoint_set.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"

// Which checkpoint is meant: of a folder, or by a path.

namespace passel {
namespace {

enum class PathKind { kFolder, kIndex, kSet, kBest, kFile, kOther };

PathKind KindOfPath(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return PathKind::kFolder;
  const auto [folder, name] = FolderAndName(path);
  if (!std::filesystem::exists(path, ignored)) {
    if (StepOfCheckpoint(name)) return PathKind::kSet;
    const bool of_checkpoints = IsRegularFile(InFolder(folder, kIndexFile));
    return name == kBestFile && of_checkpoints ? PathKind::kBest : PathKind::kOther;
  }
  if (name == kIndexFile && ReadCheckpointIndex(folder).ok()) return PathKind::kIndex;
  const Result<TensorFile> file = TensorFile::Open(path);
  if (!file.ok()) return name == kBestFile ? PathKind::kBest : PathKind::kOther;
  const bool part = file->Word(kFormatKey) == kSavedModelFormat && !file->Word(kSaveKey).empty();
  return part ? PathKind::kFile : PathKind::kOther;
}

}  // namespace

Result<CheckpointSet> CheckpointSet::OpenNewest(const std::string& folder) {
  constexpr int kMostTurns = 100;
  for (int turn = 0;; ++turn) {
    PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex index, ReadCheckpointIndex(folder));
    std::vector<std::string> broken;
    const auto warn = [&] {
      for (const std::string& sentence : broken) {
        LogWarning("{}; the checkpoint before it is looked at", sentence);
      }
    };
    for (auto entry = index.kept.rbegin(); entry != index.kept.rend(); ++entry) {
      Result<CheckpointSet> set = Open(folder, entry->name);
      const Code code = set.status().code();
      if (code == Code::kDataLoss || code == Code::kNotFound) {
        broken.push_back(set.status().message());
        continue;
      }
      warn();
      return set;
    }
    // Whoever trains there may have deleted since what was the newest.
    PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex now, ReadCheckpointIndex(folder));
    if (now != index && turn < kMostTurns) continue;
    warn();
    if (!index.kept.empty()) {
      return NotFound(fmt::format("{} has no checkpoint that is whole: name another", folder));
    }
    PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> complete, CompleteSets(folder));
    if (complete.empty()) {
      return NotFound(fmt::format("{} has no checkpoint: name a folder that has some", folder));
    }
    return NotFound(fmt::format("{} has no checkpoint that an index names: name one, such as {}",
                                folder, InFolder(folder, complete.back())));
  }
}

Result<CheckpointSet> CheckpointSet::OpenBest(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(std::optional<BestEntry> best, BestCheckpoint(folder));
  for (;;) {
    if (!best) {
      return NotFound(
          fmt::format("{} has no best checkpoint: a job that evaluates on validation images while "
                      "it trains marks one; name another checkpoint",
                      folder));
    }
    Result<CheckpointSet> set = Open(folder, best->name);
    if (set.status().code() != Code::kNotFound) return set;
    // Whoever trains there may have found a better one, and deleted this.
    PASSEL_ASSIGN_OR_RETURN(std::optional<BestEntry> now, BestCheckpoint(folder));
    if (now && now->name == best->name) return set;
    best = std::move(now);
  }
}

bool NamesCheckpoint(const std::string& path) { return KindOfPath(path) != PathKind::kOther; }

Result<CheckpointSet> OpenCheckpointAt(const std::string& path) {
  const auto [folder, name] = FolderAndName(path);
  switch (KindOfPath(path)) {
    case PathKind::kFolder:
      return CheckpointSet::OpenNewest(path);
    case PathKind::kIndex:
      return CheckpointSet::OpenNewest(folder);
    case PathKind::kSet:
      return CheckpointSet::Open(folder, name);
    case PathKind::kBest:
      return CheckpointSet::OpenBest(folder);
    default:
      return CheckpointSet::OpenFile(path);
  }
}

}  // namespace passel
