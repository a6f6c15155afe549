// signals.h - SIGINT, SIGTERM and SIGHUP as events of a poll loop.

#pragma once

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel {

/// Blocks the three signals in this thread (and those it starts) and makes them readable. Call
/// before any thread is started. Children start with them unblocked.
class SignalEvents {
 public:
  static Result<SignalEvents> Create();
  int fd() const { return fd_.get(); }
  /// The next signal, 0 if there is none.
  int Next();

 private:
  explicit SignalEvents(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

}  // namespace passel
