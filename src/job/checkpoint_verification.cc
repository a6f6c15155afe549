#include "job/checkpoint_verification.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/counted.h"
#include "io/checked_tensors.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "job/checkpoint_listing.h"
#include "train/checkpoint_set.h"
#include "train/checkpoint_words.h"

namespace passel::job {
namespace {

bool SaysBroken(const Status& status) {
  return status.code() == Code::kDataLoss || status.code() == Code::kNotFound;
}

void AddFile(const TensorFile& file, VerifiedCheckpoint* verified) {
  ++verified->files;
  if (file.tensors().empty()) return;
  const TensorFile::Tensor& last = file.tensors().back();
  verified->bytes += last.begin + last.bytes;
}

// What is wrong with each part by itself.
std::vector<std::string> BrokenParts(const std::string& folder, const std::string& name) {
  std::vector<std::string> broken;
  const Result<std::vector<std::string>> paths = PartsOf(folder, name);
  if (!paths.ok()) return broken;
  for (const std::string& path : *paths) {
    const Status whole = OpenCheckedTensors(path).status();
    if (!whole.ok()) broken.push_back(whole.message());
  }
  return broken;
}

Result<VerifiedCheckpoint> Verified(const std::string& name, const Result<CheckpointSet>& set) {
  VerifiedCheckpoint verified;
  verified.name = name;
  if (set.ok()) {
    for (const TensorFile& part : set->parts()) AddFile(part, &verified);
    return verified;
  }
  if (!SaysBroken(set.status())) return set.status();
  verified.broken.push_back(set.status().message());
  return verified;
}

// `listed`: the folder was seen to have it.
Result<VerifiedCheckpoint> VerifySet(const std::string& folder, const std::string& name,
                                     bool listed) {
  const Result<CheckpointSet> set = CheckpointSet::Open(folder, name);
  PASSEL_ASSIGN_OR_RETURN(VerifiedCheckpoint verified, Verified(InFolder(folder, name), set));
  if (verified.broken.empty()) return verified;
  if (const auto parts = BrokenParts(folder, name); !parts.empty()) verified.broken = parts;
  PASSEL_ASSIGN_OR_RETURN(const CheckpointListing now, ListCheckpoints(folder));
  if (std::ranges::find(now.checkpoints, name, &ListedCheckpoint::name) != now.checkpoints.end()) {
    return verified;
  }
  if (!listed && set.status().code() == Code::kNotFound) return set.status();
  verified.gone = listed;
  if (listed) verified.broken.clear();
  return verified;
}

Result<VerifiedCheckpoint> VerifyFile(const std::string& path) {
  Result<TensorFile> file = TensorFile::Open(path);
  VerifiedCheckpoint verified;
  verified.name = path;
  if (file.status().code() == Code::kDataLoss) {
    verified.broken.push_back(file.status().message());
    return verified;
  }
  if (!file.ok()) return file.status();
  if (!HasChecksums(*file) && file->Word(kFormatKey) != kSavedModelFormat) {
    return InvalidArgument(
        fmt::format("{} has no checksums, so nobody can tell whether it is whole: name a "
                    "checkpoint, or a file of --save",
                    path));
  }
  if (file->Word(kPartsKey) == "1") return Verified(path, CheckpointSet::OpenFile(path));
  const Status whole = CheckTensors(*file);
  if (whole.ok()) {
    PASSEL_RETURN_IF_ERROR(CheckFormat(file->metadata()));
    AddFile(*file, &verified);
    return verified;
  }
  if (!SaysBroken(whole)) return whole;
  verified.broken.push_back(whole.message());
  return verified;
}

}  // namespace

std::string VerifiedCheckpoint::Text() const {
  if (gone) return fmt::format("{}: gone meanwhile, a job saves there", name);
  if (!broken.empty()) return fmt::format("{}: broken", name);
  if (!not_read.ok()) return fmt::format("{}: not read", name);
  return fmt::format("{}: whole, {} bytes in {}", name, bytes, Counted(files, "file"));
}

Json VerifiedCheckpoint::AsJson() const {
  const char* const state = gone              ? "gone"
                            : !broken.empty() ? "broken"
                            : !not_read.ok()  ? "not read"
                                              : "whole";
  return {{"checkpoint", name},
          {"state", state},
          {"files", files},
          {"bytes", bytes},
          {"broken", broken}};
}

Result<std::vector<VerifiedCheckpoint>> VerifyCheckpoints(const std::string& path) {
  std::error_code ignored;
  std::vector<VerifiedCheckpoint> all;
  if (std::filesystem::is_directory(path, ignored)) {
    PASSEL_ASSIGN_OR_RETURN(const CheckpointListing listing, ListCheckpoints(path));
    if (listing.checkpoints.empty()) {
      return NotFound(fmt::format(
          "there is no checkpoint in {}, so nothing was verified: name the --checkpoint_dir of a "
          "job that has saved, or one file",
          path));
    }
    for (const ListedCheckpoint& set : listing.checkpoints) {
      Result<VerifiedCheckpoint> one = VerifySet(path, set.name, /*listed=*/true);
      VerifiedCheckpoint not_read;
      not_read.name = InFolder(path, set.name);
      not_read.not_read = one.status();
      all.push_back(one.ok() ? *std::move(one) : std::move(not_read));
    }
    return all;
  }
  const std::filesystem::path typed(path);
  const std::string name = typed.filename().string();
  const bool is_file = std::filesystem::exists(typed, ignored);
  Result<VerifiedCheckpoint> one = [&]() -> Result<VerifiedCheckpoint> {
    if ((is_file && name != kBestFile) || !NamesCheckpoint(path)) return VerifyFile(path);
    const std::string folder = typed.has_parent_path() ? typed.parent_path().string() : ".";
    if (name != kBestFile) return VerifySet(folder, name, /*listed=*/false);
    PASSEL_ASSIGN_OR_RETURN(const std::optional<BestEntry> best, BestCheckpoint(folder));
    if (!best) {
      const Result<CheckpointSet> none = CheckpointSet::OpenBest(folder);
      if (!none.ok()) return none.status();
      return Verified(none->name(), none);
    }
    return VerifySet(folder, best->name, /*listed=*/true);
  }();
  PASSEL_RETURN_IF_ERROR(one.status());
  all.push_back(*std::move(one));
  return all;
}

}  // namespace passel::job
