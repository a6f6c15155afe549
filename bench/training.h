// training.h - N worker processes train the MLP for a while, in one way of sharing or another.

#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/status.h"
#include "bench/stores.h"
#include "bench/suite.h"
#include "data/dataset.h"
#include "lab/cell.h"
#include "store/mode.h"

namespace passel::bench {

/// How the workers share their parameters; none: every process has its own, the reference.
using TrainingSharing = std::optional<lab::Sharing>;
/// "private", or as lab::SharingName() says.
std::string_view TrainingSharingName(const TrainingSharing& sharing);

struct TrainingJob {
  const Dataset* data = nullptr;
  int workers = 2;
  int cores = 2;  ///< usable ones
  double seconds = 0.5;
  std::size_t hidden = 100;
  std::uint32_t batch_size = 100;
  bool time_parts = false;  ///< times the parts of each step: takes longer, for that alone
  /// Runs in a process of its own, on any core, from the end of the warm-up on; empty: none does.
  std::function<Status()> beside = {};
};

/// By the settings of the suite.
TrainingJob JobOf(const Suite& suite, const Dataset& data, int workers);

struct TrainingRun {
  double steps_per_second = 0;  ///< local steps of all workers, after a warm-up
  double push_us = 0;           ///< mean per step: push, and wait for a round
  double compute_us = 0;        ///< mean per step
  double wait_us = 0;           ///< the part of push_us that waits for others
  double overlapped_share = 0;  ///< blocks entered without the claim, of all blocks applied
  double accuracy = 0;          ///< on test images, of the shared (or worker 0's) values
  double median_step_us = 0;    ///< of all workers' steps: other programs hardly move it
  double p99_step_us = 0;       ///< of the same
  /// If in each step all waited for the slowest worker: that step, over the mean step.
  double slowest = 1;
  /// Mean per step, with `time_parts`; else 0.
  double gather_us = 0, forward_us = 0, backward_us = 0;
  HistogramSummary push_ns;  ///< every push of worker 0
};

/// Errors: the answer is wrong: a count does not add up, the values are not finite, or, after
/// enough steps, do not classify. kInvalidArgument: a worker found a loss or gradient that is not
/// finite, which happens to the naive sweep.
Result<TrainingRun> RunTraining(const TrainingJob& job, const TrainingSharing& sharing);

/// One run of the limit and one of what is measured.
struct TrainingPair {
  TrainingRun limit, run;
};

}  // namespace passel::bench
