// fabric_step.h - one step of a store whose ps is another process: what it costs, the update's own
// time apart.

#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/pipe.h"

namespace passel::bench {

/// One worker and what its messages go by.
struct StepPipe {
  std::string name;
  std::unique_ptr<fabric::Pipe> pipe;
};

struct StepTimes {
  std::string name;
  std::vector<double> us;  ///< of each step: a pull, a push, and the wait for its outcome
};
struct StepResult {
  std::vector<StepTimes> remote;
  std::vector<double> update_us;  ///< the same on memory of this process
};

/// The ps, until the other end of `socket` is closed. The workers are those of `pipes`, in order.
Status ServeSteps(std::size_t floats, std::vector<StepPipe> pipes, int socket);

/// The workers take turns: `steps` steps each, `rounds` times and once before, to warm up. All that
/// is pulled at the end is compared with what must be there.
Result<StepResult> MeasureSteps(std::size_t floats, std::vector<StepPipe> pipes, int rounds,
                                int steps);

}  // namespace passel::bench
