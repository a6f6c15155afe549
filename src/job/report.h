// report.h - what a job achieved: for people, and as JSON for programs.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/checkpoint_facts.h"
#include "job/job_status.h"
#include "job/learning_curve.h"
#include "job/life_log.h"
#include "job/run_info.h"
#include "store/shard_memory.h"
#include "train/worker_loop.h"

namespace passel::job {

/// "format" of the JSON, which tools/page/run_report.py reads: another one when a field that it
/// needs goes or means something else.
inline constexpr int kReportFormat = 1;

struct JobReport {
  RunInfo run;
  std::vector<CurvePoint> curve;
  std::int64_t program_start_ns = 0;  ///< MonotonicNs() when the program began
  std::string job_id;
  std::string mode;                    ///< the first one
  std::string model, optimizer, data;  ///< no model: it is that of another program
  int ps = 0;
  int push_every = 1;  ///< local steps of one push
  bool pinned = false;
  bool interrupted = false;
  int exit_code = 0;
  /// What the checkpoint had from which the job went on: no part of its speeds.
  std::int64_t resumed_step = 0;
  CheckpointFacts checkpoints;
  double seconds = 0;          ///< from the start of the program to the end of the last worker
  double startup_seconds = 0;  ///< from the start of the program to the first step
  std::optional<TestResult> test;
  std::optional<std::int64_t> values_step;  ///< global step of the values, where it is not status's
  JobStatus status;
  std::vector<std::string> worker_exits;
  LifeLog lives;
  std::vector<std::string> notes;

  /// What the arena says of the job, and with it when training began; a note if its workers
  /// multiply with different kernels.
  void TakeStatus(JobStatus said);

  /// Any at all, beside those of the checkpoint that it went on from.
  bool MadeSteps() const;
  /// Between the first and the last step of all workers; 0 without steps.
  double TrainingSeconds() const;
  /// Local steps of all workers a second.
  double StepsPerSecond() const;
  /// Global steps a second.
  double UpdatesPerSecond() const;
};

/// With --arena device: notes of which step the values are that are left. Workers renew the shadow
/// when they end; those that were killed have not.
void NoteShadow(const ShardMemory& lead, JobReport* report);

/// A few lines for a person.
std::string Summary(const JobReport& report);
/// The JSON text of --report.
std::string ToJson(const JobReport& report);
/// WriteResult() of that text.
Status WriteReport(const std::string& path, const JobReport& report);

}  // namespace passel::job
