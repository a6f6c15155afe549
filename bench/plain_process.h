// plain_process.h - passel_plain_training as a child: the plain loops with the kernels that
// OpenBLAS chooses itself.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace passel::bench {

class PlainProcess {
 public:
  /// On the images of `data_dir`. It dies with this process. Errors: kInternal.
  static Result<PlainProcess> Start(const std::string& data_dir);
  PlainProcess(PlainProcess&& other) noexcept;
  PlainProcess& operator=(PlainProcess&&) = delete;
  ~PlainProcess();

  /// Microseconds of each of 1 to 255 steps. Errors: kUnavailable, kDeadlineExceeded after a
  /// minute.
  Result<std::vector<double>> Steps(int count);

 private:
  PlainProcess() = default;
  pid_t child_ = -1;
  FileDescriptor to_, from_;
};

}  // namespace passel::bench
