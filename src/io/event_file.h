// event_file.h - writes an event file that TensorBoard reads while it grows.
//
//   FOLDER/events.out.tfevents.<seconds since 1970, ten digits>.<host>
//   each record: io/event_record.h; the first one says which version this is
//
// Whoever adds an event never waits: a thread of the writer makes histograms, encodes and writes.
// Its queue is short; what finds it full is dropped and counted. What is written reaches the file
// when an interval is over or much has gathered, the first event at once, and all of it when the
// writer closes: a process that is killed loses what came in between. The first interval is short,
// each is twice the one before it, and none is longer than `flush_interval`.
//
// Every writer makes a file of its own, whose name sorts behind those in the folder, even if the
// clock was set back: readers take the files in that order, one after the other.
//
// Threads    Add() from any; Close() from one.
// Errors     A file that cannot be written ends the writer, not the program: what was written
//            before stands, all else is dropped. `on_problem` is told, once.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "io/event.h"

namespace passel {

struct EventFileOptions {
  std::size_t max_queue = 10;  ///< events
  std::chrono::nanoseconds flush_interval = std::chrono::seconds(120);
  std::chrono::nanoseconds first_interval = std::chrono::seconds(1);
  /// Told of each problem, but of none twice, on the thread of the writer. May be empty.
  std::function<void(const std::string& sentence)> on_problem{};
  /// Asked on the thread of the writer, before an event is written, for others to write before it.
  /// May be empty.
  std::function<std::vector<Event>()> others{};
};

class EventFile {
 public:
  /// Makes the folder if there is none, and a file with its first record. `now`: WallSeconds().
  /// Errors: the call that failed, and the path.
  static Result<std::unique_ptr<EventFile>> Create(const std::string& folder, double now,
                                                   const EventFileOptions& options = {},
                                                   FileOps& ops = FileOps::Real());
  /// Close().
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  /// Never waits for the disk. False: dropped, since the queue was full, or the file is closed or
  /// cannot be written.
  bool Add(Event event);

  /// Everything that was added is in the file when this returns, unless a problem was told of.
  /// `last` finds room in any case.
  void Close(std::optional<Event> last = std::nullopt);

  /// The file cannot be written any more.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Events that were not written.
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  EventFile(std::string path, int fd, const EventFileOptions& options, FileOps& ops);

  void WriteAll();
  // What is to be encoded next. None: it is time to write what has gathered, or to end.
  std::optional<Event> Take(std::int64_t flush_at_ns, bool* closing);
  void Encode(const Event& event);
  // Hands what has gathered to the system.
  void Flush();
  void Fail(int error);
  void Tell(const std::string& sentence);

  const std::string path_;
  const EventFileOptions options_;
  FileOps& ops_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> queue_;  // guarded by mutex_
  bool closing_ = false;     // the same
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> failed_{false};

  // Of the thread.
  int fd_;
  std::string buffer_;             // records that are not in the file yet
  std::uint64_t buffered_ = 0;     // so many
  std::set<std::string> told_of_;  // problems
  std::thread thread_;             // last: it uses all of the above
};

}  // namespace passel
