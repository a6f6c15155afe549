// single_process.h - training without a cluster: one worker, its store in its own memory.

#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "store/in_process_store.h"
#include "tools/passel/job_config.h"
#include "tools/passel/progress.h"
#include "tools/passel/report.h"
#include "tools/passel/shared_data.h"
#include "tools/passel/signals.h"

namespace passel {

class SingleProcessJob {
 public:
  /// All arguments outlive the job.
  SingleProcessJob(const JobConfig& config, const StorePlan& plan, const ModelLayout& layout,
                   const SharedData& data, SignalEvents& signals);
  /// Trains; fills in the report but for the test result.
  Status Run(Progress& progress, JobReport* report);
  /// Of the one shard.
  std::vector<const float*> values() const;

 private:
  const JobConfig& config_;
  const StorePlan& plan_;
  const ModelLayout& layout_;
  const SharedData& data_;
  SignalEvents& signals_;
  std::unique_ptr<InProcessArena> arena_;
};

}  // namespace passel
