// memory_need.h - what a job needs beside its data set, asked before any process is started: the
// kernel's answer to a shortage is not an error but its out-of-memory killer.

#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/memory_file.h"
#include "base/status.h"
#include "job/checkpoint_settings.h"
#include "job/job_config.h"
#include "store/store_plan.h"

namespace passel::job {

/// The processes of a job on this host.
struct JobProcesses {
  int ps = 0;  ///< 0: everything is in this process
  int workers = 1;
  bool evaluator = false;
};

/// Whether all arenas and all processes fit the memory that is free, and beside them what a save
/// copies first. Each ps asks the kernel again when it reserves its arena. REQUIRES: the data set
/// is loaded. Errors: kResourceExhausted, naming the bytes needed, the bytes free and whose limit
/// it is.
Status CheckMemory(const StorePlan& plan, const JobConfig& config, const JobProcesses& processes);

/// The same of one worker that was started by hand.
Status CheckWorkerMemory(const JobConfig& config);

/// Whether there is memory for what a save copies before anything is written: in rounds, and where
/// checkpoints are consistent, values and slot variables of these `shards`, which are on this host.
/// `beside`: bytes that the job will take before that. OK for a job that saves only at its end.
/// Errors: kResourceExhausted, as above.
Status CheckSaveMemory(const StorePlan& plan, const CheckpointConfig& checkpoints,
                       std::span<const int> shards, std::uint64_t beside,
                       const MemoryBudget& budget);
/// The same of all shards, for the chief of a job by hand whose ps are all on its host: before they
/// make those arenas that are not there.
Status CheckSaveMemory(const StorePlan& plan, const JobConfig& config,
                       const std::function<bool(int shard)>& has_arena);
/// What these bytes of an arena take of the memory that is free: nothing, where it has huge pages
/// that were set apart.
std::uint64_t OfFreeMemory(std::uint64_t arena_bytes, const JobConfig& config);

}  // namespace passel::job
