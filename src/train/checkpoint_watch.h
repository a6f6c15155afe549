// checkpoint_watch.h - what checkpoints are new in a folder that somebody else saves to.
//
// Threads    One thread at a time.

#pragma once

#include <sys/stat.h>

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

}  // namespace passel
