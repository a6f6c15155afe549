// job_status.h - what an arena tells about its job, for people and reports.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/json.h"
#include "cluster/worker_names.h"
#include "job/worker_counts.h"
#include "optim/optimizer.h"
#include "shm/arena.h"
#include "store/metrics.h"
#include "store/mode_change.h"
#include "store/parameter_store.h"

namespace passel::job {

/// One worker's counters, read once (relaxed: it may be running).
struct WorkerStatus {
  Member member;
  bool remote = false;  ///< it reaches the ps by messages
  WorkerCounts counts;
  std::int64_t first_step_ns = 0, last_step_ns = 0;  ///< MonotonicNs(); 0: none
  double loss = 0, accuracy = 0, final_accuracy = -1;
  std::uint64_t device = 0;  ///< DeviceOf(WorkerCounters::device)
  std::string kernels;       ///< MatrixKernels() of its process; "": it has not said, or has a GPU
  std::vector<Metric> metrics;
};

struct JobStatus {
  std::vector<PastMode> modes;      ///< so far, the one in force last
  std::optional<ModeSetting> wish;  ///< the mode it is changing to
  std::int64_t global_step = 0;
  bool initialized = false;
  bool stopped = false;
  std::uint64_t local_steps = 0;  ///< of all workers
  /// Of these, those of the checkpoint that the job began with.
  std::int64_t restored_step = 0;
  std::uint64_t restored_local_steps = 0;
  std::vector<GroupRates> rates;  ///< of each group of variables; empty: none were set
  HistogramSummary staleness;
  HistogramSummary push_latency_ns;
  std::vector<BucketCount> staleness_buckets, push_latency_buckets;  ///< the same, whole
  std::vector<WorkerStatus> workers;  ///< those that were asked to take part, ever

  /// Made by this job.
  std::int64_t GlobalStepsHere() const { return global_step - restored_step; }
  std::uint64_t LocalStepsHere() const {
    return local_steps > restored_local_steps ? local_steps - restored_local_steps : 0;
  }
};

/// MonotonicNs() of the first step of any worker; 0: there was none.
std::int64_t FirstStepNs(const JobStatus& status);
/// MonotonicNs() of the last one; 0: there was none.
std::int64_t LastStepNs(const JobStatus& status);

/// Each name once, in the order of the workers that have it: the mean of theirs.
std::vector<Metric> MeanMetrics(const JobStatus& status);
/// Wherever a person reads it, and in JSON where it is not finite: "nan", "inf", "-inf".
std::string InWords(const Metric& metric, int digits);
/// {"reward":1.5,...}
Json Describe(const std::vector<Metric>& metrics);
/// [{"learning_rate":0.001,"weight_decay":0},...]
Json Describe(const std::vector<GroupRates>& rates);

/// WorkerCounters::device is where the worker computes (1: CPU, 2: GPU) in its lowest byte, and on
/// a CPU MatrixKernelsCode() above it. Passels that do not know them leave 0 there.
constexpr std::uint64_t DeviceWord(std::uint64_t device, std::uint64_t kernels_code) {
  return device | kernels_code << 8;
}
constexpr std::uint64_t DeviceOf(std::uint64_t word) { return word & 0xff; }
/// "" where none are known.
std::string KernelsOf(std::uint64_t word);

/// "cpu", "gpu", or "unknown" while a worker has not chosen yet: WorkerStatus::device.
const char* DeviceName(std::uint64_t device);

/// What the lead's arena tells.
JobStatus ReadJobStatus(const ShardMemory& memory);

/// What an arena tells of its job, with the last events: an object, "arena" in the status that a ps
/// gives (shm/rendezvous_client.h).
Json DescribeJob(const shm::Arena& arena, const WorkerNames& names);

}  // namespace passel::job
