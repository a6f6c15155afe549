// plain_process.h - passel_plain_training as a child: the plain loops with the kernels that
// OpenBLAS chooses itself.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/child_process.h"

namespace passel::bench {

class PlainProcess {
 public:
  /// On the images of `data_dir`. Errors: those of ChildProcess::Start().
  static Result<PlainProcess> Start(const std::string& data_dir);

  /// Microseconds of each of 1 to 255 steps. Errors: kUnavailable, why there is no such process;
  /// kDeadlineExceeded after a minute.
  Result<std::vector<double>> Steps(int count);

 private:
  explicit PlainProcess(ChildProcess child) : child_(std::move(child)) {}
  ChildProcess child_;
};

}  // namespace passel::bench
