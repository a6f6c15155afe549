// worker_counts.h - what workers count, as a status and a report show it: a row each.
//
// A new counter is a word of WorkerCounters (store/shard_memory.h), the place that counts, and a
// row here. The status that a ps gives, `passel ctl status --json` and --report have it then, for
// each worker by its name, and the report for the job.

#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "store/shard_memory.h"

namespace passel::job {

struct WorkerCount {
  std::string_view name;  ///< in JSON
  std::string_view unit;
  std::atomic<std::uint64_t> WorkerCounters::*counter;
  bool is_maximum = false;  ///< of a job: the largest of all workers, not their sum
};
inline constexpr WorkerCount kWorkerCounts[] = {
    {"dropped", "gradients", &WorkerCounters::dropped},
    {"max_clock_lead", "steps", &WorkerCounters::max_clock_lead, /*is_maximum=*/true},
    {"skipped", "gradients", &WorkerCounters::skipped},
    {"half_applied", "pushes", &WorkerCounters::half_applied},
    {"fused_updates", "pushes", &WorkerCounters::fused_updates},
    {"overlapped_blocks", "blocks", &WorkerCounters::overlapped_blocks},
    {"busy_blocks", "blocks", &WorkerCounters::busy_blocks},
    {"taken_over_blocks", "blocks", &WorkerCounters::taken_over_blocks},
};

/// How long a worker did something: "seconds" of its status.
struct WorkerTime {
  std::string_view name;  ///< in JSON
  std::atomic<std::uint64_t> WorkerCounters::*ns;
};
inline constexpr WorkerTime kWorkerTimes[] = {
    {"pull", &WorkerCounters::pull_ns},
    {"compute", &WorkerCounters::compute_ns},
    {"push", &WorkerCounters::push_ns},
    {"wait", &WorkerCounters::wait_ns},
};

/// The counters of one worker, or of all, as they were read.
class WorkerCounts {
 public:
  WorkerCounts() = default;
  /// Relaxed: the worker may be running.
  explicit WorkerCounts(const WorkerCounters& counters) {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      counts_[i] = (counters.*kWorkerCounts[i].counter).load(std::memory_order_relaxed);
    }
    for (std::size_t i = 0; i < nanoseconds_.size(); ++i) {
      nanoseconds_[i] = (counters.*kWorkerTimes[i].ns).load(std::memory_order_relaxed);
    }
  }

  /// REQUIRES: the counter has a row in kWorkerCounts.
  std::uint64_t& operator[](std::atomic<std::uint64_t> WorkerCounters::*counter) {
    const auto* const row = std::ranges::find(kWorkerCounts, counter, &WorkerCount::counter);
    PASSEL_CHECK(row != std::end(kWorkerCounts), "a counter without a row");
    return counts_[static_cast<std::size_t>(row - kWorkerCounts)];
  }
  std::uint64_t operator[](std::atomic<std::uint64_t> WorkerCounters::*counter) const {
    return WorkerCounts(*this)[counter];
  }

  /// The counts of a job take in one more worker.
  void Add(const WorkerCounts& worker) {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      counts_[i] = kWorkerCounts[i].is_maximum ? std::max(counts_[i], worker.counts_[i])
                                               : counts_[i] + worker.counts_[i];
    }
    for (std::size_t i = 0; i < nanoseconds_.size(); ++i) nanoseconds_[i] += worker.nanoseconds_[i];
  }

  /// Every count by its name.
  void DescribeCounts(Json* object) const {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      (*object)[kWorkerCounts[i].name] = counts_[i];
    }
  }
  /// The times by their names, in seconds.
  void DescribeTimes(Json* object) const {
    for (std::size_t i = 0; i < nanoseconds_.size(); ++i) {
      (*object)[kWorkerTimes[i].name] = 1e-9 * static_cast<double>(nanoseconds_[i]);
    }
  }

 private:
  std::array<std::uint64_t, std::size(kWorkerCounts)> counts_{};
  std::array<std::uint64_t, std::size(kWorkerTimes)> nanoseconds_{};
};

}  // namespace passel::job
