#include "train/checkpoint_watch.h"

#include <sys/stat.h>

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_folder.h"
#include "io/event_file.h"

namespace passel {

CheckpointWatch::CheckpointWatch(std::string folder, double since)
    : folder_(std::move(folder)), since_(since) {}

std::vector<Event> CheckpointWatch::News() {
  std::vector<Event> news;
  struct stat info {};
  if (folder_.empty() || ::stat(InFolder(folder_, kIndexFile).c_str(), &info) != 0) return news;
  // It is replaced, not written to. Two in one tick of the file system's clock differ in the inode.
  const auto now = std::tuple(info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ino);
  if (now == read_) return news;
  const Result<CheckpointIndex> index = ReadCheckpointIndex(folder_);
  if (!index.ok()) return news;
  read_ = now;
  std::set<std::string> there;
  for (const auto& entry : index->kept) {
    there.insert(entry.name);
    if (known_.contains(entry.name) || entry.saved_at < since_) continue;
    Event& event = news.emplace_back();
    event.wall_time = entry.saved_at;
    event.step = StepOfCheckpoint(entry.name).value_or(0);
    event.what.emplace<SessionLog>(
        SessionLog{SessionLog::Status::kCheckpoint, InFolder(folder_, entry.name)});
  }
  known_ = std::move(there);
  return news;
}

void TellOfCheckpoints(const std::string& summaries, std::vector<Event> saved) {
  if (summaries.empty() || saved.empty()) return;
  EventFileOptions options;
  options.on_problem = [](const std::string& sentence) {
    LogWarning("summaries: {}; the last checkpoint is not told of", sentence);
  };
  const Result<std::unique_ptr<EventFile>> file =
      EventFile::Create(summaries, WallSeconds(), options);
  if (!file.ok()) return options.on_problem(file.status().message());
  Event last = std::move(saved.back());
  saved.pop_back();
  for (Event& event : saved) (void)(*file)->Add(std::move(event));
  (*file)->Close(std::move(last));
}

void TellOfCheckpoint(const std::string& summaries, const std::string& path, std::int64_t step) {
  TellOfCheckpoints(
      summaries, {Event{WallSeconds(), step, SessionLog{SessionLog::Status::kCheckpoint, path}}});
}

}  // namespace passel
