// crash_states.h - what a crash or a power cut may leave of the calls of a save.
//
// The calls are recorded while they are made. A crash may come after each of them, and then:
//   - of a file that was written since its last fsync, all, half or nothing of that may be there;
//   - of the names that were made, renamed or removed since the last fsync of the folder, any
//     choice may have reached the disk. (A rename is one act: never half of it.)

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"

namespace passel::test {

/// The real calls, recorded.
class RecordedOps : public FileOps {
 public:
  int Open(const std::string& path, int* fd) override;
  int Write(int fd, const void* data, std::size_t bytes) override;
  int WriteAt(int fd, const void* data, std::size_t bytes, std::uint64_t offset) override;
  int SyncFile(int fd) override;
  int Rename(const std::string& from, const std::string& to) override;
  int SyncDir(const std::string& dir) override;
  int Unlink(const std::string& path) override;

  using Files = std::map<std::string, std::string>;  // path -> contents
  /// Calls `check` with every state that a crash may leave of what was recorded, `before` being
  /// what was on the disk then. All paths are of one folder. Returns how many states there were.
  std::size_t ForEachCrash(const Files& before,
                           const std::function<void(const Files&)>& check) const;

 private:
  enum class Kind { kLink, kUnlink, kRename, kWrite, kSync, kSyncDir };
  struct Call {
    Kind kind;
    std::string path;  // of the link that is made or removed
    std::string from;  // of a rename
    int file = -1;     // its number, by Open()
    std::string data{};
    std::uint64_t offset = 0;  // of the data
  };
  std::vector<Call> calls_;
  std::map<int, int> open_;            // fd -> file
  std::map<int, std::uint64_t> ends_;  // of what Write() has written, by fd
  std::map<std::string, int> names_;   // as they are now
  int files_ = 0;
};

}  // namespace passel::test
