#include "io/checkpoint_folder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/text.h"
#include "io/checked_tensors.h"
#include "io/checkpoint_files.h"

namespace passel {
namespace {

constexpr const char* kOwnerFile = ".owner";
constexpr std::size_t kMaxJobWord = 512;
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

// Line `k` of a text, without its end; "" if there is none.
std::string_view LineOf(std::string_view text, int k) {
  for (; k > 0; --k) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

std::string OneLine(std::string_view job) {
  std::string line(job.substr(0, kMaxJobWord));
  std::ranges::replace(line, '\n', ' ');
  return line;
}

// A file that stays, so that its lock is one that all see: POSIX locks work on NFS and go when the
// process does, even by kill -9.
// The file has three lines: "process 12 on host", a word of the job, and what is being written
// (`left` by a former owner).
Result<FileDescriptor> BecomeOwner(const std::string& folder, std::string_view job,
                                   std::string* left) {
  const std::string path = InFolder(folder, kOwnerFile);
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd.valid()) return ErrnoStatus(errno, fmt::format("cannot open {}", path));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  // Of the open file, not of the process: whatever else this process opens and closes there.
  const int locked = ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0 ? 0 : errno;
  std::array<char, 2048> bytes = {};
  const ssize_t got = ::pread(fd.get(), bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const std::string_view who = LineOf(text, 0), of_job = LineOf(text, 1);
  *left = LineOf(text, 2);
  if (locked != 0) {
    if (locked != EAGAIN && locked != EACCES) {
      return ErrnoStatus(locked, fmt::format("cannot lock {}", path));
    }
    const std::string owner = who.empty() ? "another job" : Printable(who, 128);
    if (!job.empty() && of_job == job) {
      return Unavailable(fmt::format(
          "{} is still the checkpoint folder of {}, another life of this job", folder, owner));
    }
    return AlreadyExists(fmt::format(
        "{} is the checkpoint folder of {}, which is running: stop it first, or name another",
        folder, owner));
  }
  return fd;
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

Result<std::vector<TensorFile>> OpenCheckpoint(const std::string& folder, std::string_view name) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> paths, PartsOf(folder, name));
  std::vector<TensorFile> files;
  for (const std::string& path : paths) {
    PASSEL_ASSIGN_OR_RETURN(TensorFile file, OpenCheckedTensors(path));
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

Result<CheckpointIndex> ReadCheckpointIndex(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(const std::optional<CheckpointIndex> index,
                          ReadIndex(InFolder(folder, kIndexFile)));
  return index.value_or(CheckpointIndex());
}

Result<std::optional<BestEntry>> BestCheckpoint(const std::string& folder) {
  PASSEL_ASSIGN_OR_RETURN(const CheckpointIndex best, ReadBest(folder));
  if (best.kept.empty()) return std::optional<BestEntry>();
  return std::optional(BestEntry{best.kept.back().name, best.score});
}

CheckpointFolder::CheckpointFolder(std::string path, const KeepPolicy& policy, FileOps& ops)
    : path_(std::move(path)), policy_(policy), ops_(&ops) {}

Result<CheckpointFolder> CheckpointFolder::Own(const std::string& path, const KeepPolicy& policy,
                                               double now, FileOps& ops, std::string_view job) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoStatus(error.value(), fmt::format("cannot make the folder {}", path));
  CheckpointFolder folder(path, policy, ops);
  std::string left;
  folder.job_ = OneLine(job);
  PASSEL_ASSIGN_OR_RETURN(folder.owner_, BecomeOwner(path, folder.job_, &left));
  PASSEL_ASSIGN_OR_RETURN(folder.index_, ReadCheckpointIndex(path));
  if (folder.index_.last_preserved == 0) folder.index_.last_preserved = now;
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path));
  for (const std::string& file : files) {  // of saves that were killed
    if (IsCheckpointFile(TargetOfTemporary(file)))
      PASSEL_RETURN_IF_ERROR(folder.Delete(InFolder(path, file)));
  }
  PASSEL_RETURN_IF_ERROR(folder.DeleteUnfinished(left));
  PASSEL_RETURN_IF_ERROR(folder.SayOwner({}));
  return folder;
}

// `saving`: what is being written, "model.ckpt-500 SAVE"; "": nothing.
Status CheckpointFolder::SayOwner(std::string_view saving) {
  std::array<char, 256> host = {};
  (void)::gethostname(host.data(), host.size() - 1);
  const std::string who =
      fmt::format("process {} on {}\n{}\n{}", ::getpid(), host.data(), job_, saving);
  if (::pwrite(owner_.get(), who.data(), who.size(), 0) != static_cast<ssize_t>(who.size()) ||
      ::ftruncate(owner_.get(), static_cast<off_t>(who.size())) != 0) {
    return ErrnoStatus(errno, fmt::format("cannot write {}", InFolder(path_, kOwnerFile)));
  }
  return {};
}

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

// Without it the next owner lets stand what a crash leaves: no reason not to save.
void CheckpointFolder::BeginSave(std::int64_t step, std::string_view save) {
  (void)SayOwner(fmt::format("{} {}", CheckpointName(step), save));
}

void CheckpointFolder::GiveUp() { (void)SayOwner({}); }

std::string CheckpointFolder::PathOf(std::string_view name) const { return InFolder(path_, name); }

Result<std::optional<std::string>> CheckpointFolder::Newest(std::vector<std::string>* warnings) {
  const bool had_some = !index_.kept.empty();
  while (!index_.kept.empty()) {
    const std::string name = index_.kept.back().name;
    const Status whole = OpenCheckpoint(path_, name).status();
    if (whole.ok()) return std::optional(name);
    if (whole.code() != Code::kDataLoss && whole.code() != Code::kNotFound) return whole;
    warnings->push_back(fmt::format("{}; the checkpoint before it is used", whole.message()));
    if (const auto parts = PartsOf(path_, name); parts.ok()) {
      for (const std::string& part : *parts) {
        if (const int failed = ops_->Rename(part, part + std::string(kCorruptEnding))) {
          return ErrnoStatus(failed, fmt::format("cannot rename {}", part));
        }
      }
    }
    index_.kept.pop_back();
    PASSEL_RETURN_IF_ERROR(Write(kIndexFile, index_));
  }
  if (!had_some) return std::optional<std::string>();
  return DataLoss(
      fmt::format("{} has no checkpoint that is whole: use --resume never to begin "
                  "anew, or another folder",
                  path_));
}

Status CheckpointFolder::Commit(std::int64_t step, int parts, double now) {
  const std::string name = CheckpointName(step);
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path_));
  for (const std::string& file : files) {  // of a save in another number of parts
    if (PartsInName(file, name).value_or(parts) == parts) continue;
    PASSEL_RETURN_IF_ERROR(Delete(InFolder(path_, file)));
  }
  PASSEL_RETURN_IF_ERROR(OpenCheckpoint(path_, name).status());
  CheckpointIndex next = index_;
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
    if (oldest.saved_at > next.last_preserved + policy_.keep_every_hours * 3600) {
      next.last_preserved = oldest.saved_at;
      if (is_best) best.last_preserved = oldest.saved_at;
    } else if (!is_best) {
      old.push_back(oldest.name);
    }
  }
  if (best != written) PASSEL_RETURN_IF_ERROR(Write(kBestFile, best));
  PASSEL_RETURN_IF_ERROR(Write(kIndexFile, next));
  index_ = std::move(next);
  (void)SayOwner({});
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
