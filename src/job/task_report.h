// task_report.h - the report of a job whose tasks were started by hand: what the arena of ps/0 says
// of it when it ends. Who started the other tasks, and how often, nobody there knows.
//
// Threads    One at a time.

#pragma once

#include <cstdint>

#include "job/job_config.h"
#include "job/learning_curve.h"
#include "job/report.h"
#include "job/task.h"
#include "shm/arena.h"
#include "store/shard_memory.h"

namespace passel::job {

/// Errors: kInvalidArgument, for a task that cannot write one.
Status CheckReportOf(const TaskSettings& flags, const TaskId& id);

class TaskReport {
 public:
  TaskReport(const Task& task, const JobConfig& config);
  /// Every now and then, for the curve.
  void Look(const ShardMemory& lead);
  /// To --report. `data_told`: what workers have said that they train on (JobDataFromJson()), ""
  /// if they said nothing. `note`: a sentence on how the job ended, or "". Errors: those of
  /// WriteReport().
  Status Write(const shm::Arena& lead, const std::string& data_told, const std::string& note,
               int exit_code);

 private:
  const std::string path_;
  JobReport report_;
  LearningCurve curve_;
  std::int64_t next_look_ns_ = 0;
};

}  // namespace passel::job
