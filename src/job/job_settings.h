// job_settings.h - the settings that describe a training job, the same for `train`, `launch` and
// `task`, as they were given.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/data_settings.h"
#include "job/flag_checks.h"
#include "optim/hyper_flags.h"

namespace passel::job {

/// Global steps of a job for which nobody said when to stop.
inline constexpr std::int64_t kDefaultTrainSteps = 20000;

inline constexpr const char* kDefaultHiddenUnits = "100";

/// As given on the command line: text where the value has a grammar of its own.
struct JobSettings {
  // Data
  SourceSettings source;
  bool download_only = false;  // of the command itself: not handed to tasks
  std::int64_t csv_train_limit = 0, csv_test_limit = 0;
  std::int64_t batch_size = 100;
  std::string sampler = "next_batch";
  bool shard_data = false;
  std::int64_t train_examples = 0;  // 0: all
  std::int64_t validation_size = 0;
  // Model
  std::string model = "mlp";
  std::string hidden_units = kDefaultHiddenUnits;
  std::string loss = "mean";
  std::uint64_t seed = 1;
  // Optimizer
  std::string optimizer = "adam";
  HyperSettings hyper;  // what is not given has the optimizer's own default
  // Training
  std::optional<std::string> mode;  // none: hogwild, or what one of the next two says
  bool sync_replicas = false;
  std::optional<std::int64_t> replicas_to_aggregate;
  std::optional<std::int64_t> staleness_bound;
  std::string mode_schedule;
  std::vector<std::string> slow_worker;
  // Stop rules. Not given: kDefaultTrainSteps, or none beside one of the others. 0: none.
  std::optional<std::int64_t> train_steps;
  std::int64_t epochs = 0, local_steps = 0;  // 0: no such rule
  std::int64_t push_every = 1;
  std::string pull = "auto";
  bool prefetch = false;
  std::string on_nan = "stop";
  // Evaluator
  double eval_interval = 10;  // seconds
  std::int64_t eval_steps = 0;
  bool eval_consistent = false;
  // Evaluation and log lines
  std::string worker_eval_set = "test";
  std::int64_t worker_eval_steps = 0;  // 0: at the end only
  std::string log_lines;               // "": task for `passel task`, none else
  std::int64_t log_step_count_steps = 100;
  std::int64_t log_epochs = 0;  // 0: log_step_count_steps counts
  std::string timeline_dir;     // "": none
  std::int64_t timeline_steps = 1000;
  // Checkpoints
  std::string checkpoint_dir;   // "": none
  double save_secs = 600;       // 0: by steps only
  std::int64_t save_steps = 0;  // 0: by time only
  int keep_checkpoints = 5;     // 0: all of them
  double keep_every_hours = 1e4;
  std::string resume = "auto";  // or never, or a path
  std::string init;             // "": none
  bool checkpoint_consistent = false;
  // Summaries
  std::string logs_dir;  // "": none
  double summary_secs = 120, histogram_secs = 30;
  std::int64_t summary_steps = 0;  // 0: by time only
  // Placement
  std::string placement = "round_robin";
  std::string partitioner = "none";
  std::string global_step = "first";
  std::int64_t global_step_bytes = 4;
  std::vector<std::string> pin_variable;
  // Machine
  int threads_per_worker = 1;
  int towers = 1;
  bool overlap = false;
  std::optional<int> steps_ahead;  // none: 1, with overlap
  bool cuda_graphs = true;
  bool fused_update = true;
  std::string math = "float32";
  std::string arena = "host";
  double shadow_interval = 1;  // seconds
  std::string huge_pages = "off";
  double memory_fraction = 1;
  std::optional<double> spin_us;  // none: by the number of cores
  std::string on_stall = "evict";
  double stall_limit = 600, start_wait = 300, ps_wait = 10;  // seconds
  std::string log_level = "info", log_format = "text", log_file;

  TypedNumbers typed;  // of those flags that are no whole numbers
};

/// What --mode says, or the mode that --sync_replicas stands for; a schedule may say otherwise.
std::string ModeOf(const JobSettings& flags);

}  // namespace passel::job
