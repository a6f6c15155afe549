// runner.h - a child process with one library, which multiplies when it is asked to.

#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "bench/child_process.h"
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
  /// The child opens the library. Errors: kNotFound, why the library is not there; kUnavailable,
  /// how the child ended instead; those of ChildProcess::Start().
  static Result<Runner> Start(const LibraryChoice& choice, const std::string& folder);

  const std::string& name() const { return name_; }
  const std::string& kernels() const { return kernels_; }

  /// One product's time: cold with its operands in memory alone, warm the mean of several that run
  /// for at least `least_us` together, after one that is not timed.
  /// Errors: kUnavailable, how the child ended; kDeadlineExceeded after a minute.
  Result<Timing> Measure(const Shape& shape, bool cold, double least_us);

 private:
  Runner(std::string name, std::string kernels, ChildProcess child)
      : name_(std::move(name)), kernels_(std::move(kernels)), child_(std::move(child)) {}
  std::string name_, kernels_;
  ChildProcess child_;
};

}  // namespace passel::bench
