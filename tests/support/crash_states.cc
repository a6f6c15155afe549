#include "support/crash_states.h"

#include <utility>

namespace passel::test {

int RecordedOps::Open(const std::string& path, int* fd) {
  const int error = FileOps::Open(path, fd);
  if (error != 0) return error;
  open_[*fd] = files_;
  ends_[*fd] = 0;
  names_[path] = files_;
  calls_.push_back({Kind::kLink, path, {}, files_++, {}});
  return 0;
}

int RecordedOps::Write(int fd, const void* data, std::size_t bytes) {
  calls_.push_back({Kind::kWrite,
                    {},
                    {},
                    open_.at(fd),
                    std::string(static_cast<const char*>(data), bytes),
                    ends_[fd]});
  ends_[fd] += bytes;
  return FileOps::Write(fd, data, bytes);
}

int RecordedOps::WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset) {
  calls_.push_back({Kind::kWrite,
                    {},
                    {},
                    open_.at(fd),
                    std::string(static_cast<const char*>(data), bytes),
                    offset});
  return FileOps::WriteAt(fd, data, bytes, offset);
}

int RecordedOps::SyncFile(int fd) {
  calls_.push_back({Kind::kSync, {}, {}, open_.at(fd), {}});
  return FileOps::SyncFile(fd);
}

int RecordedOps::Rename(const std::string& from, const std::string& to) {
  const auto file = names_.find(from);
  const int number = file == names_.end() ? -1 : file->second;
  calls_.push_back({Kind::kRename, to, from, number, {}});
  names_.erase(from);
  names_[to] = number;
  return FileOps::Rename(from, to);
}

int RecordedOps::SyncDir(const std::string& dir) {
  calls_.push_back({Kind::kSyncDir, {}, {}, -1, {}});
  return FileOps::SyncDir(dir);
}

int RecordedOps::Unlink(const std::string& path) {
  calls_.push_back({Kind::kUnlink, path, {}, -1, {}});
  names_.erase(path);
  return FileOps::Unlink(path);
}

std::size_t RecordedOps::ForEachCrash(const Files& before,
                                      const std::function<void(const Files&)>& check) const {
  struct File {
    std::string safe, now;  // what was synced, and what was written
    void Put(std::uint64_t offset, const std::string& data) {
      const auto at = static_cast<std::size_t>(offset);
      if (now.size() < at + data.size()) now.resize(at + data.size());
      now.replace(at, data.size(), data);
    }
    std::string After(std::size_t halves) const {  // of what was not synced
      if (halves == 0) return safe;
      const std::size_t there = now.size() * halves / 2;
      return now.substr(0, there) + (safe.size() > there ? safe.substr(there) : "");
    }
  };
  std::size_t states = 0;
  for (std::size_t made = 0; made <= calls_.size(); ++made) {
    std::map<int, File> files;
    std::vector<const Call*> safe, pending;  // changes of names
    for (std::size_t i = 0; i < made; ++i) {
      const Call& call = calls_[i];
      switch (call.kind) {
        case Kind::kWrite:
          files[call.file].Put(call.offset, call.data);
          break;
        case Kind::kSync:
          files[call.file].safe = files[call.file].now;
          break;
        case Kind::kSyncDir:
          safe.insert(safe.end(), pending.begin(), pending.end());
          pending.clear();
          break;
        default:
          pending.push_back(&call);
      }
    }
    for (std::size_t chosen = 0; chosen < std::size_t{1} << pending.size(); ++chosen) {
      for (const std::size_t halves : {0, 1, 2}) {  // of what was not synced
        Files left = before;
        const auto apply = [&](const Call& call) {
          if (call.kind != Kind::kLink)
            left.erase(call.kind == Kind::kRename ? call.from : call.path);
          if (call.kind == Kind::kUnlink) return;
          if (call.file < 0) {  // it was there before
            if (const auto old = before.find(call.from); old != before.end()) {
              left[call.path] = old->second;
            }
            return;
          }
          const auto file = files.find(call.file);
          if (file == files.end()) {
            left[call.path].clear();
          } else {
            left[call.path] = file->second.After(halves);
          }
        };
        for (const Call* call : safe) apply(*call);
        for (std::size_t i = 0; i < pending.size(); ++i) {
          if (chosen >> i & 1) apply(*pending[i]);
        }
        check(left);
        ++states;
      }
    }
  }
  return states;
}

}  // namespace passel::test
