// job_config.h - the settings of a job, checked and turned into what the libraries take.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory_file.h"
#include "base/status.h"
#include "cluster/cluster_spec.h"
#include "data/dataset.h"
#include "job/checkpoint_settings.h"
#include "job/job_settings.h"
#include "nn/model_config.h"
#include "optim/optimizer.h"
#include "store/store_plan.h"
#include "store/wait_options.h"
#include "train/log_lines.h"
#include "train/model_plan.h"
#include "train/summary_options.h"
#include "train/towers.h"
#include "train/worker_loop.h"

namespace passel::job {

/// Examples that a model which only evaluates takes at once.
inline constexpr std::size_t kEvaluationBatch = 500;

/// Who asks for the settings: a task by hand tells what it does unless it is told not to.
enum class JobSettingsOf { kTaskByHand, kOther };

/// The settings after every check that needs no data.
struct JobConfig {
  ModelConfig model;  // without inputs and classes
  OptimizerConfig optimizer;
  ModeSetting mode;
  std::vector<ScheduledMode> mode_schedule;  // without step 0
  bool mode_of_schedule = false;             // the schedule's step 0 named `mode`
  PlacementOptions placement;
  WorkerOptions worker;              // without num_workers
  std::uint64_t train_examples = 0;  // 0: all
  std::int64_t validation_size = 0;
  std::size_t examples = 0;  // that are trained on; of FitToData()
  bool fake_data = false;
  LogStyle log_style = LogStyle::kNone;
  std::int64_t log_steps = 100;
  std::int64_t log_epochs = 0;  // 0: log_steps counts
  std::string timeline_dir;     // "": no timelines
  std::int64_t timeline_steps = 1000;
  SummaryOptions summaries;  // without what only the running job knows
  HugePages huge_pages = HugePages::kOff;
  double memory_fraction = 1;  // of the free memory, for one arena
  int threads_per_worker = 1;
  int towers = 1;
  bool prefetch = false;
  // For workers on GPUs.
  int steps_ahead = 0;  // 0: no --overlap
  bool cuda_graphs = true;
  bool fused_update = true;
  MathMode math = MathMode::kFloat32;
  bool on_device = false;               // --arena device
  std::int64_t shadow_interval_ns = 0;  // of its shadow
  OnStall on_stall = OnStall::kEvict;
  std::int64_t stall_limit_ns = 0, start_wait_ns = 0, ps_wait_ns = 0;
  double spin_us = -1;
  std::int64_t eval_interval_ns = 0;  // of an evaluator
  std::int64_t eval_steps = 0;        // 0: by time only
  bool eval_consistent = false;
  CheckpointConfig checkpoints;
};
/// Makes the log what the settings say: its level, its format, its file. To be called first.
/// Errors: kInvalidArgument; those of OpenLogFile().
Status StartLog(const JobSettings& flags);

/// Errors: kInvalidArgument: the flag, its limits, its value and the fix.
Result<JobConfig> CheckJobSettings(const JobSettings& flags,
                                   JobSettingsOf of = JobSettingsOf::kOther);

/// The examples that are trained on, and those that are evaluated on. Errors: kInvalidArgument.
Result<DataSplit> SplitData(const JobConfig& config, const Dataset& data);

/// Fills in what the data decides, for a job of `workers`. Errors: kInvalidArgument, also for a
/// batch larger than what any of them draws from, the same for all, or an evaluation on images that
/// are not there.
Status FitToData(const Dataset& data, int workers, JobConfig* config);

/// Local steps of all workers together that the stop rules allow, kNoStepLimit if only the global
/// step is limited. For progress: a worker computes its own.
std::int64_t TotalLocalSteps(const JobConfig& config, const DataSplit& data, int workers);

/// The log lines of one task, which go to standard output at once.
LogLines MakeLogLines(const JobConfig& config, const TaskId& task, bool chief);

/// Notes in the lead shard when the job began and how far it is to go, for those who ask. For the
/// chief; a later life of it changes nothing.
void TellOfJob(std::int64_t target, ShardState& lead);
/// The global step that a job of this config is to reach; 0: none.
std::int64_t TargetOf(const JobConfig& config);

/// Errors: kInvalidArgument for a --slow_worker that is none of `workers`.
Status CheckSlowWorkers(const JobConfig& config, int workers);

/// With places for `most_workers`, `workers` of whom are there at first.
/// REQUIRES: FitToData() was called. Errors: kInvalidArgument, also those of CheckSlowWorkers().
Result<StorePlan> MakePlan(const JobConfig& config, int shards, int workers, int most_workers);
/// The same for variables that are no model of ours. REQUIRES: nothing of FitToData().
Result<StorePlan> MakePlan(const JobConfig& config, VariableTable variables, int workers,
                           int most_workers);

/// Whether others may join and leave the workers of this job. Errors: kInvalidArgument.
Status CheckMayJoin(const JobConfig& config);

/// How long waits spin: long where each worker has a core, next to nothing where not.
WaitOptions MakeWaitOptions(const JobConfig& config, int workers, int cores);

}  // namespace passel::job
