#include "io/checkpoint_folder.h"

#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "io/checked_tensors.h"
#include "io/checkpoint_files.h"

namespace passel {
namespace {

constexpr std::size_t kMaxIndexBytes = std::size_t{1} << 20;

// The number of parts that a file of a set says it is one of; nothing if it is no part of the set.
std::optional<int> PartsInName(std::string_view file, std::string_view set) {
  const std::optional<PartOfSet> part = ParsePartName(file);
  if (!part || part->set != set) return {};
  return part->parts;
}

Result<std::optional<CheckpointIndex>> ReadIndex(const std::string& path) {
  if (!IsRegularFile(path) && ::access(path.c_str(), F_OK) != 0 && errno == ENOENT) {
    return std::optional<CheckpointIndex>();
  }
  PASSEL_ASSIGN_OR_RETURN(const auto bytes, ReadFile(path, kMaxIndexBytes));
  Result<CheckpointIndex> index = ParseCheckpointIndex(
      std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!index.ok()) return index.status().WithContext(path);
  return std::optional(std::move(*index));
}

Result<CheckpointIndex> ReadBest(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(const std::optional<CheckpointIndex> best,
                          ReadIndex(InFolder(folder, kBestFile)));
  return best.value_or(CheckpointIndex());
}

}  // namespace

std::string PartPath(const std::string& folder, std::int64_t step, int part, int parts) {
  return InFolder(folder, PartName(CheckpointName(step), part, parts));
}

Result<std::vector<std::string>> PartsOf(const std::string& folder, std::string_view name) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(folder));
  std::map<int, int> there;  // by the number of parts: how many there are
  for (const std::string& file : files) {
    if (const std::optional<int> parts = PartsInName(file, name)) ++there[*parts];
  }
  for (const auto& [parts, count] : there) {
    if (count != parts) continue;
    std::vector<std::string> paths;
    for (int part = 0; part < parts; ++part) {
      paths.push_back(InFolder(folder, PartName(name, part, parts)));
    }
    return paths;
  }
  if (there.empty()) {
    return NotFound(fmt::format("{} is not there", InFolder(folder, PartName(name, 0, 1))));
  }
  const auto& [parts, count] = *there.begin();
  return NotFound(fmt::format("{} has {} of its {} parts", InFolder(folder, name), count, parts));
}

namespace {

Result<std::vector<TensorFile>> OpenParts(const std::string& folder, std::string_view name,
                                          Status (*check)(const TensorFile& file)) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> paths, PartsOf(folder, name));
  std::vector<TensorFile> files;
  for (const std::string& path : paths) {
    PASSEL_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
    PASSEL_RETURN_IF_ERROR(check(file));
    const std::pair<const char*, std::string> due[] = {
        {kStepKey, std::to_string(StepOfCheckpoint(name).value_or(-1))},
        {kPartKey, std::to_string(files.size())},
        {kPartsKey, std::to_string(paths.size())},
        {kSaveKey, (files.empty() ? file : files[0]).Word(kSaveKey)}};
    for (const auto& [key, value] : due) {
      if (file.Word(key) == value && !value.empty()) continue;
      return DataLoss(fmt::format("{} has the {} {}, not {}: it is of another checkpoint", path,
                                  key, Quoted(file.Word(key)), Quoted(value)));
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Result<std::vector<TensorFile>> OpenCheckpoint(const std::string& folder, std::string_view name) {
  return OpenParts(folder, name, CheckTensors);
}

Result<std::vector<std::string>> CompleteSets(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(folder));
  std::map<std::pair<std::string, int>, int> there;  // of a set in so many parts
  std::set<std::pair<std::int64_t, std::string>> complete;
  for (const std::string& file : files) {
    const std::optional<PartOfSet> part = ParsePartName(file);
    if (part && ++there[{part->set, part->parts}] == part->parts) {
      complete.emplace(StepOfCheckpoint(part->set).value_or(0), part->set);
    }
  }
  std::vector<std::string> names;
  for (const auto& [step, name] : complete) names.push_back(name);
  return names;
}

bool IsOfCheckpoints(std::string_view file) { return file == kOwnerFile || IsCheckpointFile(file); }

Result<CheckpointIndex> ReadCheckpointIndex(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(const std::optional<CheckpointIndex> index,
                          ReadIndex(InFolder(folder, kIndexFile)));
  return index.value_or(CheckpointIndex());
}

std::string NewestCheckpointIn(const std::string& folder) {
  const Result<CheckpointIndex> index = ReadCheckpointIndex(folder);
  return index.ok() && !index->kept.empty() ? index->kept.back().name : "none";
}

Result<std::optional<BestEntry>> BestCheckpoint(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex best, ReadBest(folder));
  if (best.kept.empty()) return std::optional<BestEntry>();
  return std::optional(BestEntry{best.kept.back().name, best.score});
}

CheckpointFolder::CheckpointFolder(std::string path, const KeepPolicy& policy, FolderOwner owner,
                                   FileOps& ops)
    : path_(std::move(path)), policy_(policy), owner_(std::move(owner)), ops_(&ops) {}

Result<CheckpointFolder> CheckpointFolder::Own(const std::string& path, const KeepPolicy& policy,
                                               double now, FileOps& ops, std::string_view job) {
  std::string left;
  PASSEL_ASSIGN_OR_RETURN(FolderOwner owner, FolderOwner::Become(path, job, &left));
  CheckpointFolder folder(path, policy, std::move(owner), ops);
  PASSEL_ASSIGN_OR_RETURN(folder.index_, ReadCheckpointIndex(path));
  if (folder.index_.last_preserved == 0) folder.index_.last_preserved = now;
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path));
  for (const std::string& file : files) {  // of saves that were killed
    if (IsOfCheckpoints(TargetOfTemporary(file)))
      PASSEL_RETURN_IF_ERROR(folder.Delete(InFolder(path, file)));
  }
  PASSEL_RETURN_IF_ERROR(folder.DeleteUnfinished(left));
  PASSEL_RETURN_IF_ERROR(folder.FindFormerSets());
  PASSEL_RETURN_IF_ERROR(folder.owner_.Say({}));
  return folder;
}

// `saving`: what is being written, "model.ckpt-500 SAVE"; "": nothing.
Status CheckpointFolder::DeleteUnfinished(std::string_view left) {
  const std::string_view set = left.substr(0, left.find(' '));
  if (set.size() == left.size() || !StepOfCheckpoint(set) || index_.Find(set) != nullptr) return {};
  const std::string_view save = left.substr(set.size() + 1);
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path_));
  for (const std::string& file : files) {
    if (!PartsInName(file, set)) continue;
    // Another set of that name is somebody else's.
    const Result<TensorFile> part = TensorFile::Open(InFolder(path_, file));
    if (!part.ok() || part->Word(kSaveKey) != save) continue;
    PASSEL_RETURN_IF_ERROR(Delete(InFolder(path_, file)));
  }
  return {};
}

Status CheckpointFolder::FindFormerSets() {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> complete, CompleteSets(path_));
  former_.insert(complete.begin(), complete.end());
  for (const auto& entry : index_.kept) former_.insert(entry.name);
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex best, ReadBest(path_));
  for (const auto& entry : best.kept) former_.insert(entry.name);
  return {};
}

Result<std::vector<std::string>> CheckpointFolder::Unlisted() const {
  PASSEL_ASSIGN_OR_RETURN(std::vector<std::string> names, CompleteSets(path_));
  std::erase_if(names, [this](const std::string& name) {
    return index_.Find(name) != nullptr || !former_.contains(name);
  });
  return names;
}

Status CheckpointFolder::CheckNameIsFree(std::int64_t step) const {
  const std::string name = CheckpointName(step);
  if (!former_.contains(name)) return {};
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex best, ReadBest(path_));
  const bool is_best = best.Find(name) != nullptr;
  if (!is_best && index_.Find(name) == nullptr && !PartsOf(path_, name).ok()) return {};
  return AlreadyExists(
      fmt::format("{} is there{}, and this job has not saved it: it stays as it is; move it away, "
                  "or name another folder",
                  PathOf(name), is_best ? " as the best" : ""));
}

// Without it the next owner lets stand what a crash leaves: no reason not to save.
void CheckpointFolder::BeginSave(std::int64_t step, std::string_view save) {
  for (const std::string& former : std::exchange(given_up_, {})) (void)DeleteUnfinished(former);
  owner_.Keep();
  saving_ = fmt::format("{} {}", CheckpointName(step), save);
  (void)owner_.Say(saving_);
}

void CheckpointFolder::GiveUp() {
  const std::string set = saving_.substr(0, saving_.find(' '));
  if (Result<std::vector<std::string>> files = FilesIn(path_); files.ok()) {
    for (const std::string& file : *files) {  // of a process that was killed
      if (PartsInName(TargetOfTemporary(file), set)) (void)Delete(InFolder(path_, file));
    }
  }
  (void)DeleteUnfinished(saving_);
  given_up_.push_back(std::exchange(saving_, {}));
  (void)owner_.Say({});
}

std::string CheckpointFolder::PathOf(std::string_view name) const { return InFolder(path_, name); }

Result<std::optional<std::string>> CheckpointFolder::Newest(std::vector<std::string>* warnings,
                                                            NoneWhole none) {
  if (index_.kept.empty()) return std::optional<std::string>();
  std::size_t left = index_.kept.size();  // to look at
  std::vector<std::string> broken;
  for (; left > 0; --left) {
    const Status whole = OpenCheckpoint(path_, index_.kept[left - 1].name).status();
    if (whole.ok()) break;
    if (whole.code() != Code::kDataLoss && whole.code() != Code::kNotFound) return whole;
    broken.push_back(whole.message());
  }
  for (const std::string& sentence : broken) {
    warnings->push_back(sentence + (left > 0 ? "; the checkpoint before it is used" : ""));
  }
  if (left == 0 && none == NoneWhole::kIsAnError) {
    return DataLoss(
        fmt::format("{} has no checkpoint that is whole: use --resume never to begin anew there, "
                    "beside what is left of them, or another --checkpoint_dir",
                    path_));
  }
  if (!broken.empty()) PASSEL_RETURN_IF_ERROR(PutAside(left));
  if (left == 0) return std::optional<std::string>();
  return std::optional(index_.kept.back().name);
}

// All that the index names from number `first` on. The index comes last: until it is written they
// are looked for, and not found.
Status CheckpointFolder::PutAside(std::size_t first) {
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex best, ReadBest(path_));
  for (std::size_t i = first; i < index_.kept.size(); ++i) {
    const std::string& name = index_.kept[i].name;
    if (const auto parts = PartsOf(path_, name); parts.ok()) {
      for (const std::string& part : *parts) {
        if (const int failed = ops_->Rename(part, part + std::string(kCorruptEnding))) {
          return ErrnoStatus(failed, fmt::format("cannot rename {}", part));
        }
      }
    }
    if (best.Find(name) != nullptr) PASSEL_RETURN_IF_ERROR(Delete(InFolder(path_, kBestFile)));
  }
  CheckpointIndex next = index_;
  next.kept.resize(first);
  PASSEL_RETURN_IF_ERROR(Write(kIndexFile, next));
  index_ = std::move(next);
  return {};
}

Status CheckpointFolder::CheckOwner() {
  PASSEL_ASSIGN_OR_RETURN(const bool owns, owner_.Owns(path_));
  if (owns) return {};
  if (!owner_.IsOnSameDisk(path_)) {
    return FailedPrecondition(fmt::format(
        "{} is not where it was: put it back, or begin anew with another folder", path_));
  }
  std::string left;
  PASSEL_ASSIGN_OR_RETURN(FolderOwner again, FolderOwner::Become(path_, owner_.job(), &left));
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex there, ReadCheckpointIndex(path_));
  if (!there.kept.empty() && there.kept != index_.kept) {
    return FailedPrecondition(fmt::format(
        "{} was replaced while this job trained, and has checkpoints of another one, up to {}: "
        "put it back, or begin anew with another folder",
        path_, there.kept.back().name));
  }
  owner_ = std::move(again);
  index_.kept = there.kept;
  return owner_.Say({});
}

Status CheckpointFolder::Commit(std::int64_t step, int parts, double now) {
  PASSEL_RETURN_IF_ERROR(CheckOwner());
  const std::string name = CheckpointName(step);
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path_));
  for (const std::string& file : files) {
    // Of a save in another number of parts, or of one that could not tidy up after itself.
    const bool other = PartsInName(file, name).value_or(parts) != parts;
    if (!other && !IsOfCheckpoints(TargetOfTemporary(file))) continue;
    PASSEL_RETURN_IF_ERROR(Delete(InFolder(path_, file)));
  }
  // Their data were summed up as they went to the disk; who goes on from them reads all of them.
  PASSEL_RETURN_IF_ERROR(OpenParts(path_, name, CheckDescription).status());
  CheckpointIndex next = index_;
  next.last_preserved = std::min(next.last_preserved, now);  // the clock may have been set back
  std::erase_if(next.kept, [&](const auto& entry) { return entry.name == name; });
  next.kept.push_back({name, now});
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex written, ReadBest(path_));
  CheckpointIndex best = written;
  std::vector<std::string> old;
  const std::size_t keep =
      policy_.keep == 0 ? kMaxKeptCheckpoints : static_cast<std::size_t>(policy_.keep);
  while (next.kept.size() > keep) {
    const CheckpointIndex::Entry oldest = next.kept.front();
    next.kept.erase(next.kept.begin());
    const bool is_best = best.Find(oldest.name) != nullptr;
    const double saved_at = std::min(oldest.saved_at, now);
    if (saved_at > next.last_preserved + policy_.keep_every_hours * 3600) {
      next.last_preserved = saved_at;
      if (is_best) best.last_preserved = saved_at;
    } else if (!is_best) {
      old.push_back(oldest.name);
    }
  }
  if (best != written) PASSEL_RETURN_IF_ERROR(Write(kBestFile, best));
  if (const Status failed = Write(kIndexFile, next); !failed.ok()) {
    // If all but the last of its calls were done the set is there, and what is too old goes later.
    const Result<CheckpointIndex> there = ReadCheckpointIndex(path_);
    if (there.ok() && *there == next) index_.kept.push_back({name, now});
    return failed;
  }
  index_ = std::move(next);
  (void)owner_.Say({});
  for (const std::string& gone : old) PASSEL_RETURN_IF_ERROR(DeleteSet(files, gone));
  return {};
}

Status CheckpointFolder::MarkBest(const std::string& name, const ValidationScore& score) {
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex former, ReadBest(path_));
  const CheckpointIndex::Entry* const entry = index_.Find(name);
  PASSEL_CHECK(entry != nullptr, "the index names the best");
  PASSEL_RETURN_IF_ERROR(Write(kBestFile, {{*entry}, 0, score}));
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path_));
  for (const auto& old : former.kept) {
    const bool for_good = former.last_preserved != 0;
    if (for_good || old.name == name || index_.Find(old.name) != nullptr) continue;
    PASSEL_RETURN_IF_ERROR(DeleteSet(files, old.name));
  }
  return {};
}

Status CheckpointFolder::DeleteSet(const std::vector<std::string>& files, std::string_view name) {
  for (const std::string& file : files) {
    if (PartsInName(file, name)) PASSEL_RETURN_IF_ERROR(Delete(InFolder(path_, file)));
  }
  return {};
}

Status CheckpointFolder::Write(const char* file, const CheckpointIndex& index) {
  owner_.Keep();
  const std::string text = ToText(index);
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  return WriteFileAtomically(InFolder(path_, file), {&piece, 1}, *ops_);
}

Status CheckpointFolder::Delete(const std::string& path) {
  const int failed = ops_->Unlink(path);
  if (failed == 0 || failed == ENOENT) return {};
  return ErrnoStatus(failed, fmt::format("cannot delete {}", path));
}

Status CheckFreeSpace(const std::string& folder, std::uint64_t bytes) {
  struct statvfs disk;
  if (::statvfs(folder.c_str(), &disk) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot ask how much space {} has", folder));
  }
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::uint64_t needed = bytes + bytes / 100;
  if (needed <= free) return {};
  return ResourceExhausted(fmt::format(
      "a checkpoint needs {} bytes and {} has {} free: free some, or name another folder", needed,
      folder, free));
}

}  // namespace passel
