// trainer.h - what a process trains with: the model, the towers of its threads, its examples, its
// log lines. The same for a worker of a cluster and for one process that trains alone.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "data/dataset.h"
#include "job/job_config.h"
#include "nn/model.h"
#include "store/parameter_store.h"
#include "train/log_lines.h"
#include "train/model_plan.h"
#include "train/summary_options.h"
#include "train/towers.h"
#include "train/worker_loop.h"

namespace passel::job {

/// Those of all its workers, in the memory of the lead shard.
std::vector<const WorkerCounters*> CountersOf(const ShardMemory& lead);

class Trainer {
 public:
  /// `data` and `log` outlive it. The towers that `config` asks for wait by spinning like an engine
  /// of the job, for `spin` (WaitOptions::spin). `trainer`: the index of the worker.
  /// REQUIRES: FitToData(&config) was called, and the job has config.worker.num_workers workers, of
  /// whom `trainer` is one. Errors: those of the backend, the model and the split.
  static Result<Trainer> Create(const JobConfig& config, const Dataset& data,
                                std::chrono::nanoseconds spin, int trainer, LogLines& log);

  const DataSplit& split() const { return split_; }

  /// From now on Run() writes the summaries that --logs_dir asks for. For the chief. `workers`: of
  /// those whose rates are told; they outlive this. `has_ps`: the job is not this process alone.
  /// `checkpoints`: the folder of the job's checkpoints; "": there are none.
  void WriteSummaries(const JobConfig& config, std::vector<const WorkerCounters*> workers,
                      bool has_ps, const std::string& checkpoints);

  /// RunWorker(), with what computes here added to `callbacks`, and before its hooks the log lines,
  /// the summaries and the timeline.
  /// Notes in the store on which device it computes: on a GPU if `engine` has one.
  Result<WorkerResult> Run(const WorkerOptions& options, WorkerCallbacks callbacks,
                           const ModelLayout& layout, ParameterStore& store,
                           const EngineUse& engine = {});

 private:
  explicit Trainer(LogLines& log) : log_(&log) {}

  Result<std::unique_ptr<Hook>> MakeTimeline(std::string worker) const;

  LogLines* log_;
  std::string timeline_dir_;  // "": none
  std::int64_t timeline_steps_ = 0;
  int kernel_threads_ = 1;  // of a product
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Towers> towers_;  // null: one thread
  DataSplit split_;
  SummaryOptions summaries_;
};

}  // namespace passel::job
