// output_relay.h - what the tasks of a supervised job print reaches the supervisor's own output.
//
// All tasks write to two pipes (one, where the supervisor's standard output and error are the same
// file, so that their order is kept), and a thread copies whole lines. So a task is never stopped
// for writing to a terminal that it is in the background of, nor held up by a reader of the job's
// output: base/output.h keeps what is not read, and drops what is too much.

#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/file_descriptor.h"
#include "base/output.h"
#include "base/status.h"

namespace passel::job {

class OutputRelay {
 public:
  /// Errors: kResourceExhausted.
  static Result<std::unique_ptr<OutputRelay>> Create();
  /// Copies what is there, but waits for nobody who still has a pipe open.
  ~OutputRelay();

  /// For the descriptors 1 and 2 of a task.
  int out() const { return pipes_[0].write_end.get(); }
  int err() const { return pipes_[shared_ ? 0 : 1].write_end.get(); }

  /// Waits until everything written so far is copied, at most `limit`: then a line of our own comes
  /// after those of a task that has ended.
  void Settle(std::chrono::nanoseconds limit);

 private:
  struct Pipe {
    FileDescriptor read_end, write_end;
    Stream stream = Stream::kErr;
    std::string begun;  // a line without its end; of the thread
  };
  OutputRelay() = default;
  void Run();
  bool Copy(Pipe& pipe);

  std::mutex mutex_;  // held from reading a piece until it is written
  Pipe pipes_[2];
  bool shared_ = false;
  FileDescriptor stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace passel::job
