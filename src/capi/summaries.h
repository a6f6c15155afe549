// summaries.h - what TensorBoard shows of a program with a model of its own: the metrics of all
// workers, or of the chief alone where ps/0 is on another host, and the rate. Written by the chief,
// beside its steps (io/event_file.h).
//
// Threads    One, the chief's.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "io/event.h"
#include "io/event_file.h"
#include "store/shard_memory.h"
#include "train/summary_options.h"

namespace passel::capi {

/// The mean of all that have a metric, and beside it that of each. `lead` outlives it.
std::function<void(Summary*)> MetricsOfAll(const ShardMemory& lead);

class Summaries {
 public:
  /// Adds what is to be shown now.
  using Metrics = std::function<void(Summary*)>;

  /// From a job at `global_step` on. Null without a folder, and after a warning if that cannot be
  /// written.
  static std::unique_ptr<Summaries> Create(const SummaryOptions& options, std::int64_t global_step,
                                           Metrics metrics);
  /// A last one, if there was a step since the one before; then everything is in the file.
  ~Summaries();

  /// After a step of the chief: writes one if it is due; the first once there is a metric.
  void Look(std::int64_t global_step);

 private:
  Summaries(const SummaryOptions& options, Metrics metrics)
      : options_(options), metrics_(std::move(metrics)) {}
  void Write(std::int64_t global_step);

  const SummaryOptions options_;
  const Metrics metrics_;
  std::unique_ptr<EventFile> file_;
  std::int64_t seen_step_ = 0;
  std::int64_t not_before_ns_ = 0;                  // there was nothing to write
  std::int64_t written_step_ = 0, written_ns_ = 0;  // 0: none yet
};

}  // namespace passel::capi
