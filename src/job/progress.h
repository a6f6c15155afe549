// progress.h - tells a person how the job goes: a live line on a terminal, plain lines elsewhere.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "job/job_status.h"
#include "job/learning_curve.h"

namespace passel::job {

class Progress {
 public:
  /// Writes to standard error. `train_steps`: global steps of the job; `local_steps`: those of all
  /// workers together. kNoStepLimit for one that is not limited.
  /// `workers_evaluate`: each does at its end, for its log lines.
  Progress(std::int64_t train_steps, std::int64_t local_steps, bool workers_evaluate);
  ~Progress();

  /// At most four times a second on a terminal, once in two seconds elsewhere.
  void Update(const JobStatus& status);
  /// The curve of all statuses that Update() was told.
  const LearningCurve& curve() const { return curve_; }
  /// The last evaluation: `done` of `total` images. As often as Update(); elsewhere than on a
  /// terminal one line, if it takes more than two seconds.
  void Evaluating(std::size_t done, std::size_t total);
  /// Ends the live line, so that other output starts on a line of its own.
  void Finish();

 private:
  struct Sample {
    std::int64_t ns;
    std::uint64_t local_steps;
    std::int64_t global_step;
  };
  void Show(const std::vector<std::pair<int, std::string>>& parts) const;

  const std::int64_t train_steps_, local_steps_;
  const bool workers_evaluate_, terminal_;
  LearningCurve curve_;
  std::deque<Sample> recent_;  // of the last five seconds
  std::int64_t next_ns_ = 0;
  std::int64_t evaluating_since_ns_ = 0;  // 0: not yet
};

/// Parts of a line, each with its rank: those of the lowest ranks that fit into `columns`, in the
/// order given, with two spaces between. What fits nowhere is cut off.
std::string FitParts(const std::vector<std::pair<int, std::string>>& parts, std::size_t columns);

}  // namespace passel::job
