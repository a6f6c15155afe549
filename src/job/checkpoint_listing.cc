#include "job/checkpoint_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/file.h"
#include "base/local_time.h"
#include "base/text.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"

namespace passel::job {
namespace {

// The files of one set in one number of parts.
struct Files {
  int count = 0;
  std::uint64_t bytes = 0;
  double changed_at = 0;  // seconds since 1970
};
using FilesOfSets = std::map<std::string, std::map<int, Files>>;

FilesOfSets FindParts(const std::string& folder, const std::vector<std::string>& names) {
  FilesOfSets found;
  for (const std::string& name : names) {
    const std::optional<PartOfSet> part = ParsePartName(name);
    struct stat info {};
    if (!part || ::stat(InFolder(folder, name).c_str(), &info) != 0) continue;
    Files& files = found[part->set][part->parts];
    ++files.count;
    files.bytes += static_cast<std::uint64_t>(info.st_size);
    files.changed_at = std::max(files.changed_at, static_cast<double>(info.st_mtime));
  }
  return found;
}

// The number of parts in which a set is complete; 0: none.
int CompleteIn(const FilesOfSets& found, const std::string& set) {
  const auto sizes = found.find(set);
  if (sizes == found.end()) return 0;
  for (const auto& [parts, files] : sizes->second) {
    if (files.count == parts) return parts;
  }
  return 0;
}

class Lister {
 public:
  Lister(const CheckpointIndex& index, std::optional<BestEntry> best, FilesOfSets found)
      : index_(index), best_(std::move(best)), found_(std::move(found)) {
    for (const auto& entry : index.kept) {
      const std::int64_t step = StepOfCheckpoint(entry.name).value_or(0);
      oldest_ = std::min(oldest_.value_or(step), step);
    }
  }

  // Nothing for a set that was never finished.
  std::optional<ListedCheckpoint> Describe(const std::string& name) const {
    ListedCheckpoint set;
    set.name = name;
    set.step = StepOfCheckpoint(name).value_or(0);
    set.parts = CompleteIn(found_, name);
    const CheckpointIndex::Entry* const entry = index_.Find(name);
    if (set.parts > 0) {
      const Files& files = found_.at(name).at(set.parts);
      set.bytes = files.bytes;
      set.saved_at = files.changed_at;
    }
    if (entry != nullptr) {
      set.saved_at = entry->saved_at;
      set.kept.push_back(entry == &index_.kept.back() ? "newest" : "recent");
    }
    if (best_ && name == best_->name) {
      set.kept.push_back("best");
      set.score = best_->score;
    }
    // It was in the index, since later ones are.
    if (set.kept.empty() && set.parts > 0 && oldest_ && set.step < *oldest_) {
      set.kept.push_back("for good");
    }
    if (set.kept.empty()) return {};
    return set;
  }

 private:
  const CheckpointIndex& index_;
  const std::optional<BestEntry> best_;
  const FilesOfSets found_;
  std::optional<std::int64_t> oldest_;  // step that the index names
};

std::string WhyStray(const std::string& name, const FilesOfSets& found) {
  if (name.ends_with(kCorruptEnding)) return "found broken";
  const std::optional<PartOfSet> part = ParsePartName(name);
  if (!part) return "unfinished";
  const int count = found.at(part->set).at(part->parts).count;
  if (count == part->parts) return "no index names it";
  return fmt::format("unfinished: {} of {} parts", count, part->parts);
}

bool LooksLikeOurs(std::string_view name) {
  if (name.ends_with(kCorruptEnding)) {
    name.remove_suffix(kCorruptEnding.size());
  } else if (const std::string_view target = TargetOfTemporary(name); !target.empty()) {
    return IsCheckpointFile(target);
  }
  return ParsePartName(name).has_value();
}

Result<CheckpointListing> ListOnce(const std::string& folder, const CheckpointIndex& index) {
  PASSEL_ASSIGN_OR_RETURN(const std::optional<BestEntry> best, BestCheckpoint(folder));
  PASSEL_ASSIGN_OR_RETURN(std::vector<std::string> names, FilesIn(folder));
  std::ranges::sort(names);
  const FilesOfSets found = FindParts(folder, names);
  const Lister lister(index, best, found);
  CheckpointListing listing;
  listing.folder = folder;
  std::vector<std::string> sets;
  for (const auto& [set, sizes] : found) sets.push_back(set);
  for (const auto& entry : index.kept) sets.push_back(entry.name);
  if (best) sets.push_back(best->name);
  std::ranges::sort(sets);
  const auto repeated = std::ranges::unique(sets);
  sets.erase(repeated.begin(), repeated.end());
  std::map<std::string, int> listed;  // parts
  for (const std::string& name : sets) {
    const std::optional<ListedCheckpoint> set = lister.Describe(name);
    if (!set) continue;
    listed[name] = set->parts;
    listing.checkpoints.push_back(*set);
  }
  std::ranges::stable_sort(listing.checkpoints, {}, &ListedCheckpoint::step);
  for (const std::string& name : names) {
    if (!LooksLikeOurs(name)) continue;
    const std::optional<PartOfSet> part = ParsePartName(name);
    if (part) {
      const auto set = listed.find(part->set);
      if (set != listed.end() && set->second == part->parts) continue;
      const auto sizes = found.find(part->set);
      if (sizes == found.end() || !sizes->second.contains(part->parts)) continue;  // gone meanwhile
    }
    listing.strays.push_back({name, WhyStray(name, found)});
  }
  return listing;
}

}  // namespace

Result<CheckpointListing> ListCheckpoints(const std::string& folder) {
  constexpr int kMostTurns = 100;
  std::error_code ignored;
  const std::filesystem::path typed(folder);
  if (NamesCheckpoint(folder) && !std::filesystem::is_directory(typed, ignored)) {
    const std::string parent = typed.has_parent_path() ? typed.parent_path().string() : ".";
    return InvalidArgument(fmt::format(
        "{0} is one checkpoint, and ls lists those of a folder: use passel ckpt ls {1}, or passel "
        "ckpt show {0}",
        folder, parent));
  }
  if (std::filesystem::is_regular_file(folder, ignored)) {
    return InvalidArgument(
        fmt::format("{} is no folder: name the folder of the checkpoints", folder));
  }
  for (int turn = 0;; ++turn) {
    PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex index, ReadCheckpointIndex(folder));
    PASSEL_ASSIGN_OR_RETURN(CheckpointListing listing, ListOnce(folder, index));
    const bool all_there = std::ranges::all_of(
        listing.checkpoints, [](const ListedCheckpoint& set) { return set.parts > 0; });
    if (all_there || turn == kMostTurns) return listing;
    // Whoever trains there may have deleted it since.
    PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex now, ReadCheckpointIndex(folder));
    if (now == index) return listing;
  }
}

std::string ToText(const CheckpointListing& listing) {
  if (listing.checkpoints.empty() && listing.strays.empty()) {
    return fmt::format("{} has no checkpoints\n", listing.folder);
  }
  std::string text;
  if (!listing.checkpoints.empty()) {
    text += fmt::format("{:<24} {:>12} {:<25} {:>5} {:>14}  {}\n", "CHECKPOINT", "STEP", "SAVED",
                        "PARTS", "BYTES", "KEPT");
  }
  for (const ListedCheckpoint& set : listing.checkpoints) {
    std::string kept = fmt::format("{}", fmt::join(set.kept, ", "));
    if (set.score) {
      kept += fmt::format(" (validation accuracy {:.4f} at step {})", set.score->accuracy,
                          set.score->step);
    }
    if (set.parts == 0) kept += "; its files are not there";
    text += fmt::format("{:<24} {:>12} {:<25} {:>5} {:>14}  {}\n", set.name, set.step,
                        LocalTimeText(set.saved_at), set.parts, set.bytes, kept);
  }
  if (listing.strays.empty()) return text;
  text += "of no checkpoint:\n";
  for (const StrayFile& file : listing.strays) {
    text += fmt::format("  {} ({})\n", Printable(file.name, 255), file.why);
  }
  return text;
}

Json ToJson(const CheckpointListing& listing) {
  Json checkpoints = Json::MakeList(), strays = Json::MakeList();
  for (const ListedCheckpoint& set : listing.checkpoints) {
    Json score;
    if (set.score) {
      score = {{"validation_accuracy", set.score->accuracy}, {"global_step", set.score->step}};
    }
    checkpoints.Add({{"name", set.name},
                     {"global_step", set.step},
                     {"saved_at", set.saved_at},
                     {"parts", set.parts},
                     {"bytes", set.bytes},
                     {"kept", set.kept},
                     {"score", std::move(score)}});
  }
  for (const StrayFile& file : listing.strays) {
    strays.Add({{"file", file.name}, {"why", file.why}});
  }
  return {{"folder", listing.folder},
          {"checkpoints", std::move(checkpoints)},
          {"of_no_checkpoint", std::move(strays)}};
}

}  // namespace passel::job
