// output_relay.h - what the tasks of a supervised job print reaches the supervisor's own output.
//
// Each life of a task writes to two pipes of its own (one, where the supervisor's standard output
// and error are the same file, so that their order is kept), and a thread copies whole lines. So a
// task is never stopped for writing to a terminal that it is in the background of, nor held up by a
// reader of the job's output: base/output.h keeps what is not read, and drops what is too much. The
// last lines of each task are kept, for whoever asks what it said before it died.

#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/output.h"
#include "base/status.h"

namespace passel::job {

class OutputRelay {
 public:
  static constexpr std::size_t kLastLines = 40;       ///< most tracebacks
  static constexpr std::size_t kMostLineBytes = 500;  ///< of a line that is kept

  /// Errors: kResourceExhausted.
  static Result<std::unique_ptr<OutputRelay>> Create();
  /// Copies what is there, but waits for nobody who still has a pipe open.
  ~OutputRelay();

  /// For the descriptors 1 and 2 of a task: to be closed here as soon as it has them.
  struct Ends {
    FileDescriptor out, shared_or_err;
    int err() const { return shared_or_err.valid() ? shared_or_err.get() : out.get(); }
  };
  /// The pipes of a new life of `task`, any number. What its life before had said is forgotten.
  /// `prefix`: before each of its lines. `copy`: a file that its lines are written to, too, without
  /// the prefix; invalid: none. Errors: kResourceExhausted.
  Result<Ends> Open(int task, const std::string& prefix = "", FileDescriptor copy = {});

  /// Waits until everything that the task has written so far is copied, at most `limit`: then a
  /// line of our own comes after its own, and LastLines() has them all.
  void Settle(int task, std::chrono::nanoseconds limit);

  /// What this life of the task wrote last: at most kLastLines, oldest first, each cut after
  /// kMostLineBytes, without control characters.
  std::vector<std::string> LastLines(int task) const;

 private:
  struct Pipe {
    FileDescriptor read_end;
    Stream stream = Stream::kErr;
    int task = 0;
    int life = 0;
    std::string prefix = {};
    std::shared_ptr<const FileDescriptor> copy = {};  // null: none, or it could not be written
    std::string begun = {};                           // a line without its end
  };
  struct Kept {
    int life = 0;
    std::deque<std::string> lines;
  };
  OutputRelay() = default;
  void Run();
  enum class Got { kSome, kNothingNow, kEnd };
  Got Copy(Pipe& pipe);
  void Pass(Pipe& pipe, std::string_view lines);
  static void WriteCopy(Pipe& pipe, std::string_view lines);
  void Keep(const Pipe& pipe, std::string_view line);
  void Wake();

  mutable std::mutex mutex_;  // of all below; held from reading a piece until it is written
  std::list<Pipe> pipes_;     // only the thread removes one
  std::map<int, Kept> kept_;  // by task
  bool stop_ = false;
  bool shared_ = false;  // constant
  FileDescriptor wake_;  // an eventfd
  std::thread thread_;
};

}  // namespace passel::job
