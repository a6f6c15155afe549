// signals.h - SIGINT, SIGTERM and SIGHUP: at first they end the process, later they are events of
// its poll loop.
//
// By handlers, not by a blocked mask: the matrix library starts threads before main(), which leave
// the signals unblocked and would take them. A signal that is ignored when the program starts
// (nohup, a background job of a script) stays ignored.

#pragma once

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel::job {

/// From now on they end the process at once with kExitInterrupted or kExitRestartMe, like a program
/// without handlers, but with an exit code. For the time before there is anything to end cleanly.
void EndOnSignals();

/// `handler` for `signal`, unless that is ignored. System calls that it interrupts are restarted.
void HandleUnlessIgnored(int signal, void (*handler)(int));

/// From now on they are readable. One per process.
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

}  // namespace passel::job
