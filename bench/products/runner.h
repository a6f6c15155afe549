// runner.h - a child process with one library, which multiplies when it is asked to.

#pragma once

#include <sys/types.h>

#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "bench/products/library.h"
#include "bench/products/shapes.h"

namespace passel::bench {

/// What one request found.
struct Timing {
  bool has_it = false;      ///< the library has such a product
  bool correct = false;     ///< a sample of the answer is that of double precision
  double microseconds = 0;  ///< of one product
};

class Runner {
 public:
  /// Forks, and the child opens the library. It dies with this process. Errors: kNotFound, why the
  /// library is not there; kUnavailable.
  static Result<Runner> Start(const LibraryChoice& choice, const std::string& folder);
  Runner(Runner&& other) noexcept;
  Runner& operator=(Runner&&) = delete;
  ~Runner();

  const std::string& name() const { return name_; }
  const std::string& kernels() const { return kernels_; }

  /// One product's time: cold with its operands in memory alone, warm the mean of several that run
  /// for at least `least_us` together, after one that is not timed.
  /// Errors: kUnavailable when the child is gone, kDeadlineExceeded after a minute.
  Result<Timing> Measure(const Shape& shape, bool cold, double least_us);

 private:
  Runner() = default;
  std::string name_, kernels_;
  pid_t child_ = -1;
  FileDescriptor socket_;
};

}  // namespace passel::bench
