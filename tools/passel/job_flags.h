// job_flags.h - the flags that describe a training job, the same for `train`, `launch` and `task`.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_file.h"
#include "base/status.h"
#include "data/dataset.h"
#include "nn/model_config.h"
#include "optim/optimizer.h"
#include "store/local_shard.h"
#include "store/store_plan.h"
#include "train/model_plan.h"
#include "train/worker_loop.h"

namespace CLI {
class App;
}

namespace passel {

/// As given on the command line: text where the value has a grammar of its own.
struct JobFlags {
  // Data
  std::string data_dir;
  std::int64_t batch_size = 100;
  std::string sampler = "next_batch";
  bool shard_data = false;
  // Model
  std::string model = "mlp";
  std::string hidden_units = "100";
  std::string loss = "mean";
  std::uint64_t seed = 1;
  // Optimizer; a negative number stands for "the optimizer's own default"
  std::string optimizer = "adam";
  double learning_rate = -1;
  double momentum = -1, decay = -1, epsilon = -1, beta1 = -1, beta2 = -1;
  double initial_accumulator_value = -1, l1 = -1, l2 = -1, l2_shrinkage = -1;
  double learning_rate_power = 1;  // > 0: default
  bool use_nesterov = false;
  bool centered = false;
  // Training
  std::string mode = "hogwild";
  bool sync_replicas = false;
  std::optional<std::int64_t> replicas_to_aggregate;
  std::optional<std::int64_t> staleness_bound;
  std::vector<std::string> slow_worker;
  std::int64_t train_steps = 10000;
  std::string pull = "view";
  std::string on_nan = "stop";
  // Placement
  std::string placement = "round_robin";
  std::string partitioner = "none";
  // Machine
  int threads_per_worker = 1;
  std::string huge_pages = "off";
  double spin_us = -1;                                       // < 0: chosen by the number of cores
  double stall_limit = 600, start_wait = 300, ps_wait = 10;  // seconds
  std::string log_level = "info";
};

/// Adds them all. `flags` must outlive the parsing.
void AddJobFlags(CLI::App& app, JobFlags* flags);

/// The same flags as arguments for a child.
std::vector<std::string> ToArguments(const JobFlags& flags);

/// The flags after every check that needs no data.
struct JobConfig {
  ModelConfig model;  // without inputs and classes
  OptimizerConfig optimizer;
  Mode mode = Mode::kHogwild;
  int replicas_to_aggregate = 0;  // 0: one for each worker
  int staleness_bound = 0;
  PlacementOptions placement;
  WorkerOptions worker;  // without num_workers
  HugePages huge_pages = HugePages::kOff;
  int threads_per_worker = 1;
  std::int64_t stall_limit_ns = 0, start_wait_ns = 0, ps_wait_ns = 0;
  double spin_us = -1;
};
/// Errors: kInvalidArgument: the flag, its limits, its value and the fix.
Result<JobConfig> CheckJobFlags(const JobFlags& flags);

/// Fills in what the data decides. Errors: kInvalidArgument, also for a batch larger than the set.
Status FitToData(const Dataset& data, JobConfig* config);

/// REQUIRES: FitToData() was called. Errors: kInvalidArgument, also for a --slow_worker that is
/// none.
Result<StorePlan> MakePlan(const JobConfig& config, int shards, int workers);

/// How long waits spin: long where each worker has a core, next to nothing where not.
EngineOptions MakeEngineOptions(const JobConfig& config, int workers, int cores);

}  // namespace passel
