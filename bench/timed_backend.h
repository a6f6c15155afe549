// timed_backend.h - a backend that adds up where a step's time goes.

#pragma once

#include <cstdint>
#include <memory>

#include "compute/backend.h"

namespace passel::bench {

/// Nanoseconds in each part of the steps so far.
struct PartTimes {
  std::int64_t gather = 0, forward = 0, backward = 0;  ///< the loss belongs to `backward`
};

/// `inner` with a clock around each operation, some 40 ns each. For a backend that has done an
/// operation when its call returns. `times` outlives it.
std::unique_ptr<Backend> TimeParts(std::unique_ptr<Backend> inner, PartTimes* times);

}  // namespace passel::bench
