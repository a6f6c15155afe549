// stragglers.h - workers that do not answer while the end of the job waits for them.
//
// While a job trains whoever is held up looks after the others (store/watch.h). At its end, and
// where all others are gone, nobody may be left to do so: then it is for whoever waits for the end.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/own_time.h"
#include "base/status.h"
#include "cluster/worker_names.h"
#include "job/job_config.h"
#include "store/shard_memory.h"

namespace passel::job {

class Stragglers {
 public:
  explicit Stragglers(std::int64_t stall_limit_ns) : stall_limit_ns_(stall_limit_ns) {}

  /// To be called every now and then while some have ended. Of the workers that are `left`, those
  /// whose heartbeat has been the same for the stall limit, in time that the caller was running:
  /// each such one if `any_done`, else all of them or none. Who still makes steps may have a share
  /// of its own to finish (--epochs). `tasks` may be null: then nobody has a heartbeat.
  std::vector<int> Look(const TaskSlot* tasks, const std::vector<int>& left, bool any_done);

 private:
  struct Heard {
    std::int64_t heartbeat = -1;  // the word at the last look
    OwnTime silent;
  };
  const std::int64_t stall_limit_ns_;
  std::vector<Heard> heard_;  // [workers]
};

/// Where nobody else looks after the workers: of a job by hand, by ps/0. Evicts those that its end
/// alone waits for, or as config.on_stall has it. Errors: kInternal, naming one: the job has
/// failed.
Status LookAfterStragglers(const ShardMemory& memory, const JobConfig& config,
                           const WorkerNames& names, Stragglers* stragglers);

/// kInternal: "worker/1 (process 7) keeps the job from ending, and has not answered for 600 s".
Status KeepsFromEnding(const std::string& worker, std::int64_t pid, const JobConfig& config);

}  // namespace passel::job
