// profiler_hook.h - what the steps of a worker spend their time on, as a picture.
//
// Writes timeline-<global step>.json, the trace format of Chrome, which https://ui.perfetto.dev
// opens: for each step since the last file, but at most `max_steps` of them, one bar for the step
// and below it one each for pull, compute, push and wait, as long as this step made the counters of
// that name grow. The last file is written in End(). Times are MonotonicNs(), so the files of
// several workers of a host fit together. The parts of a step are drawn one after the other. What
// an engine had begun before the step (with steps ahead) does not fit into it and is cut; `args`
// has its whole length.

#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "train/hook.h"
#include "train/steps_timer.h"

namespace passel {

struct ProfilerOptions {
  Interval every{};              ///< the first file comes after the second step
  std::string output_dir{};      ///< is there
  std::size_t max_steps = 1000;  ///< of one file: about 0.5 KB each
};

/// A file that cannot be written is told of, once, and training goes on. Errors: kInvalidArgument,
/// also for `max_steps` 0.
Result<std::unique_ptr<Hook>> MakeProfiler(const ProfilerOptions& options);

}  // namespace passel
