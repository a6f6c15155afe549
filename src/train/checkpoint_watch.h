// checkpoint_watch.h - what checkpoints are new in a folder that somebody else saves to.
//
// Threads    One thread at a time.

#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "io/event.h"

namespace passel {

class CheckpointWatch {
 public:
  /// `folder`: need not be there yet; "": nothing is ever new. What it has is not new.
  explicit CheckpointWatch(std::string folder);

  /// An event for each that came since the call before, with its path and time. Costs one stat()
  /// where there is none. An index that cannot be read now is read the next time.
  std::vector<Event> News();

 private:
  const std::string folder_;
  struct timespec changed_ {};  // of the index, when it was read; 0: never
  std::set<std::string> known_;
};

/// For who saves when the file of the summaries is closed already: writes the event of this
/// checkpoint, of `path`, to a file of its own in their folder; "": there is none. A problem is a
/// warning. Waits for the disk.
void TellOfCheckpoint(const std::string& summaries, const std::string& path, std::int64_t step);

}  // namespace passel
