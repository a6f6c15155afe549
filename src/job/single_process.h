// single_process.h - training without a cluster: one worker, and an arena of its own.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/checkpoint_saver.h"
#include "job/job_config.h"
#include "job/own_arena.h"
#include "job/progress.h"
#include "job/report.h"
#include "job/shared_data.h"
#include "job/signals.h"

namespace passel::job {

class SingleProcessJob {
 public:
  /// All arguments outlive the job. `about_data`: ToJson(JobData), for those who ask the job.
  SingleProcessJob(const JobConfig& config, const StorePlan& plan, const ModelLayout& layout,
                   const SharedData& data, const std::string& about_data, SignalEvents& signals);
  /// Ends the thread.
  ~SingleProcessJob();

  /// Trains; fills in the report, with the test result where the worker has come to it. A training
  /// that fails is in the report, too. `checkpoints` says what it begins with, and begins. Errors:
  /// what kept it from beginning; kAlreadyExists when the job id is in use.
  Status Run(CheckpointSaver& checkpoints, Progress& progress, JobReport* report);
  /// The values of the one shard. REQUIRES: Run() returned OK.
  std::vector<const float*> values() const { return {arena_->memory().values}; }

 private:
  Status Train(ParameterStore& store, CheckpointSaver& checkpoints, Progress& progress,
               JobReport* report);

  const JobConfig& config_;
  const StorePlan& plan_;
  const ModelLayout& layout_;
  const SharedData& data_;
  const std::string& about_data_;
  SignalEvents& signals_;
  std::unique_ptr<OwnArena> arena_;
};

}  // namespace passel::job
