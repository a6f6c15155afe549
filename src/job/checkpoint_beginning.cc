#include "job/checkpoint_beginning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "train/checkpoint_words.h"

namespace passel::job {
namespace {

// Of which only the header is read.
Result<TensorFile> FirstPart(const CheckpointFolder& folder, const std::string& name) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> parts, PartsOf(folder.path(), name));
  return TensorFile::Open(parts.front());
}

// "" if there is none. Errors: those of the system.
Result<std::string> WordOf(const CheckpointFolder& folder, const std::string& name,
                           const char* key) {
  const Result<TensorFile> first = FirstPart(folder, name);
  if (first.ok()) return first->Word(key);
  const Code code = first.status().code();
  const bool unknown = code == Code::kInternal || code == Code::kResourceExhausted ||
                       code == Code::kPermissionDenied;
  return unknown ? Result<std::string>(first.status()) : Result<std::string>(std::string());
}

std::string WordOf(const CheckpointSet& set, const char* key) { return set.parts()[0].Word(key); }

Result<std::optional<std::string>> NewestOf(const CheckpointConfig& config,
                                            CheckpointFolder& folder) {
  using NoneWhole = CheckpointFolder::NoneWhole;
  std::vector<std::string> warnings;
  const bool needed = config.resume == kResumeAuto;
  Result<std::optional<std::string>> newest =
      folder.Newest(&warnings, needed ? NoneWhole::kIsAnError : NoneWhole::kPutAside);
  for (const std::string& warning : warnings) LogWarning("{}", warning);
  return newest;
}

// Whose index reads like ours.
Status CheckIsNotTensorFlows(const CheckpointFolder& folder) {
  for (const auto& entry : folder.index().kept) {
    const std::string file = folder.PathOf(entry.name) + ".index";
    if (!IsRegularFile(file)) continue;
    return InvalidArgument(fmt::format(
        "{} is of a checkpoint of TensorFlow, which passel does not read, and whose list of "
        "checkpoints it would replace: name another --checkpoint_dir",
        file));
  }
  return {};
}

// The latest set that the index names, of that step or a later one.
std::optional<std::string> LatestFrom(const CheckpointFolder& folder, std::int64_t step) {
  std::optional<std::string> latest;
  for (const auto& entry : folder.index().kept) {
    const std::int64_t own = StepOfCheckpoint(entry.name).value_or(0);
    if (own < step) continue;
    step = own;
    latest = entry.name;
  }
  return latest;
}

// What no index names, of that step or later ones.
Result<std::vector<std::string>> UnlistedFrom(const CheckpointFolder& folder, std::int64_t step) {
  PASSEL_ASSIGN_OR_RETURN(std::vector<std::string> names, folder.Unlisted());
  std::erase_if(names, [&](const auto& name) { return *StepOfCheckpoint(name) < step; });
  return names;
}

Status CheckCanBeginAnew(const CheckpointFolder& folder) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> there, folder.Unlisted());
  if (there.empty()) return {};
  return InvalidArgument(fmt::format(
      "{0} has {1}, and no index that names {2}: a job that begins at step 0 would meet {2}; go on "
      "with --resume {3}, move {2} away, or name another --checkpoint_dir",
      folder.path(), fmt::join(there, ", "), there.size() == 1 ? "it" : "them",
      folder.PathOf(there.back())));
}

Status CheckNothingIsLater(const CheckpointConfig& config, const CheckpointFolder& folder,
                           const Beginning& beginning) {
  // Its own name is taken too, unless by itself.
  const std::int64_t first = beginning.from->global_step() + (beginning.in_folder ? 1 : 0);
  const std::string& path = beginning.path;
  if (const std::optional<std::string> latest = LatestFrom(folder, first)) {
    if (config.ResumesFromPath()) {
      return InvalidArgument(fmt::format(
          "--resume {0} is of global step {1}, and {2} has checkpoints from there on, up to {3}, "
          "that were not begun with it: omit --resume to go on from {3}, or name another "
          "--checkpoint_dir to go on from {0}",
          path, beginning.from->global_step(), folder.path(), *latest));
    }
    return InvalidArgument(fmt::format(
        "the index of {0} names {1} as the newest checkpoint, and has later ones, up to {2}: to go "
        "back, name another --checkpoint_dir and --resume {1}; to go on, --resume {3}",
        folder.path(), path, *latest, folder.PathOf(*latest)));
  }
  PASSEL_ASSIGN_OR_RETURN(const std::vector<std::string> unlisted, UnlistedFrom(folder, first));
  if (!unlisted.empty()) {
    LogWarning(
        "{} has {}, which no index names, later than what this job goes on from: no checkpoint "
        "takes that name; go on with --resume {}, or move it away",
        folder.path(), fmt::join(unlisted, ", "), folder.PathOf(unlisted.back()));
  }
  if (!beginning.in_folder && !folder.index().kept.empty()) {
    LogWarning("{} has checkpoints of another training, up to {}: they count as older ones of this",
               folder.path(), folder.index().kept.back().name);
  }
  return {};
}

}  // namespace

std::string BegunWith(const CheckpointFolder& folder, const std::string& name) {
  const Result<std::string> word = WordOf(folder, name, kBegunWithKey);
  return word.ok() ? *word : std::string();
}

std::int64_t WorkersIn(const CheckpointFolder& folder, const std::string& name) {
  const Result<TensorFile> first = FirstPart(folder, name);
  const TensorFile::Tensor* const clocks = first.ok() ? first->Find("worker/clocks") : nullptr;
  return clocks != nullptr && !clocks->shape.empty() ? clocks->shape[0] : 0;
}

Result<Beginning> ChooseBeginning(const CheckpointConfig& config, CheckpointFolder* folder) {
  Beginning beginning;
  std::optional<CheckpointSet> from;
  if (config.ResumesFromPath()) {  // before anything is put aside
    beginning.path = config.resume;
    PASSEL_ASSIGN_OR_RETURN(from, OpenCheckpointAt(beginning.path));
  }
  std::optional<std::string> newest;
  if (folder != nullptr) {
    PASSEL_RETURN_IF_ERROR(CheckIsNotTensorFlows(*folder));
    PASSEL_ASSIGN_OR_RETURN(newest, NewestOf(config, *folder));
  }
  if (newest && config.resume == kResumeNever) {
    return InvalidArgument(fmt::format(
        "{} has checkpoints, up to {}, and --resume never would mix two trainings there: name "
        "another --checkpoint_dir, empty that one, or omit --resume",
        folder->path(), *newest));
  }
  if (!from && !newest) {
    if (folder != nullptr) PASSEL_RETURN_IF_ERROR(CheckCanBeginAnew(*folder));
    return beginning;
  }
  if (!from) {
    beginning.path = folder->PathOf(*newest);
    PASSEL_ASSIGN_OR_RETURN(from, OpenCheckpointAt(beginning.path));
  } else if (newest && *StepOfCheckpoint(*newest) >= from->global_step() &&
             BegunWith(*folder, *newest) == WordOf(*from, kSaveKey)) {
    LogInfo("{} was begun with {}, and has gone on since: its newest checkpoint is used",
            folder->path(), beginning.path);
    beginning.path = folder->PathOf(*newest);
    PASSEL_ASSIGN_OR_RETURN(from, OpenCheckpointAt(beginning.path));
  }
  // So that a newer one that comes meanwhile makes no difference.
  if (NamesCheckpoint(from->name())) beginning.path = from->name();
  if (folder != nullptr) {
    const std::string save = WordOf(*from, kSaveKey);
    PASSEL_ASSIGN_OR_RETURN(const std::string there,
                            WordOf(*folder, CheckpointName(from->global_step()), kSaveKey));
    beginning.in_folder = there == save;
    beginning.begun_with = beginning.in_folder ? WordOf(*from, kBegunWithKey) : save;
  }
  beginning.from = std::move(from);
  if (folder != nullptr) PASSEL_RETURN_IF_ERROR(CheckNothingIsLater(config, *folder, beginning));
  return beginning;
}

}  // namespace passel::job
