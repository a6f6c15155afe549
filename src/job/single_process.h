// single_process.h - training without a cluster: one worker, and what a ps would do in a thread of
// its own process, so that others find the job, watch it, copy its values and stop it as any other.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/checkpoint_saver.h"
#include "job/job_config.h"
#include "job/progress.h"
#include "job/report.h"
#include "job/shared_data.h"
#include "job/signals.h"
#include "shm/ps_host.h"
#include "store/shard_memory.h"

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
  std::vector<const float*> values() const { return {memory_.values}; }

 private:
  class Host;  // the thread

  Status MakeArena(const std::string& job_id);
  Status Train(ParameterStore& store, CheckpointSaver& checkpoints, Progress& progress,
               JobReport* report);

  const JobConfig& config_;
  const StorePlan& plan_;
  const ModelLayout& layout_;
  const SharedData& data_;
  const std::string& about_data_;
  SignalEvents& signals_;
  std::unique_ptr<Host> host_;
  ShardMemory memory_;  // in the arena that host_ holds
};

}  // namespace passel::job
