// child_process.h - a child of a benchmark that answers requests: a function of this program, or
// another program that reads them from its standard input and answers on its standard output.
//
// Requests and answers are whole messages of one write each, over a socket of packets. What the
// child writes to its standard error is kept, and told if it fails. It dies with this process and
// ignores Ctrl-C (the parent decides).

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel::bench {

class ChildProcess {
 public:
  /// Forks; the child runs body(its end of the socket) and ends with what that returns.
  /// REQUIRES: this process has one thread. Errors: kResourceExhausted, kInternal.
  static Result<ChildProcess> Start(std::string name, const std::function<int(int socket)>& body);
  /// A program in the folder of this one, called without these variables of the environment. One
  /// that cannot be executed is found at the first Send() or Receive(). Errors: the same.
  static Result<ChildProcess> StartBeside(const std::string& name,
                                          const std::vector<std::string>& arguments,
                                          const std::vector<std::string>& not_handed_on);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  /// Errors: kUnavailable, how the child ended and the end of what it wrote to its standard error.
  Status Send(const void* request, std::size_t bytes);
  /// Errors: the same, and for an answer of another size; kDeadlineExceeded.
  Status Receive(void* answer, std::size_t bytes, Deadline deadline);

 private:
  explicit ChildProcess(std::string name) : name_(std::move(name)) {}
  Status Gone();

  std::string name_;
  pid_t pid_ = -1;  // -1: none, or reaped
  FileDescriptor socket_, errors_;
};

}  // namespace passel::bench
