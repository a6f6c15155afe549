// absent_workers.h - who goes on without a worker that was never started says so.

#pragma once

#include <vector>

#include "store/parameter_store.h"
#include "train/worker_loop.h"

namespace passel {

/// Rounds wait for all workers of the job and go on without one that was never started.
class AbsentWorkers {
 public:
  /// Both outlive it.
  AbsentWorkers(const WorkerOptions& options, const ParameterStore& store)
      : options_(options), store_(store) {}

  /// Says it, once of each. Looks only while somebody may still come, or have been given up.
  void LookAfterPush();

 private:
  const WorkerOptions& options_;
  const ParameterStore& store_;
  bool all_came_ = false;        // or it was said who never will
  std::vector<int> never_came_;  // of whom it was said
};

}  // namespace passel
