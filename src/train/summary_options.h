// summary_options.h - which summaries of a training are written, where and when:
// train/summary_writer.h.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace passel {

struct WorkerCounters;

/// Where the nodes of a model's picture are.
struct GraphPlaces {
  bool has_ps = true;             ///< false: one process trains alone, and no device is named
  std::string optimizer = "sgd";  ///< OptimizerName()
};

struct SummaryOptions {
  std::string folder;            ///< empty: none are written
  std::string checkpoints;       ///< the folder whose new checkpoints are told of; empty: none are
  double began_at = 0;           ///< seconds since 1970; a checkpoint is new if saved later
  std::int64_t every_steps = 0;  ///< global steps; 0: by time only
  std::chrono::nanoseconds interval{0};            ///< whichever comes first; 0: by steps only
  std::chrono::nanoseconds histogram_interval{0};  ///< from one to the next, at least; 0: none
  double learning_rate = 0;
  GraphPlaces places;
  /// Of all workers that are to be looked at. They outlive the writer.
  std::vector<const WorkerCounters*> workers;
};

}  // namespace passel
