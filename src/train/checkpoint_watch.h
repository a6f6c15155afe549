// checkpoint_watch.h - what checkpoints are new in a folder that somebody else saves to.
//
// Threads    One thread at a time.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "io/event.h"

namespace passel {

class CheckpointWatch {
 public:
  /// `folder`: need not be there yet; "": nothing is ever new. What was saved before `since`
  /// (seconds since 1970) is not new.
  CheckpointWatch(std::string folder, double since);

  /// An event for each that came since the call before, with its path and time. Costs one stat()
  /// where there is none. An index that cannot be read now is read the next time.
  std::vector<Event> News();

 private:
  const std::string folder_;
  const double since_;
  std::tuple<time_t, long, ino_t> read_{};  // the index: time of its change and inode; 0: never
  std::set<std::string> known_;
};

/// For who saves when the file of the summaries is closed already: writes these events, of a
/// CheckpointWatch, to a file of their own in their folder; "", or no events: there is none. A
/// problem is a warning. Waits for the disk.
void TellOfCheckpoints(const std::string& summaries, std::vector<Event> saved);
/// The same of this checkpoint, of `path`.
void TellOfCheckpoint(const std::string& summaries, const std::string& path, std::int64_t step);

}  // namespace passel
