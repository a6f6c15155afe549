// memory_need.h - what a job needs beside its data set, asked before any process is started: the
// kernel's answer to a shortage is not an error but its out-of-memory killer.

#pragma once

#include "base/status.h"
#include "job/job_config.h"
#include "store/store_plan.h"

namespace passel::job {

/// The processes of a job on this host.
struct JobProcesses {
  int ps = 0;  ///< 0: everything is in this process
  int workers = 1;
  bool evaluator = false;
};

/// Whether all arenas and all processes fit the memory that is free. Each ps asks the kernel again
/// when it reserves its arena. REQUIRES: the data set is loaded.
/// Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit it is.
Status CheckMemory(const StorePlan& plan, const JobConfig& config, const JobProcesses& processes);

/// The same of one worker that was started by hand.
Status CheckWorkerMemory(const JobConfig& config);

}  // namespace passel::job
