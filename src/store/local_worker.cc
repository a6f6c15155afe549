#include "store/local_worker.h"

#include <fmt/core.h>

#include "base/clock.h"

namespace passel {
namespace {

// The lead has given its index to another life. A process of this host that has not heard of it may
// still write.
void EndFormer(const ShardMemory& shard, int worker, std::uint32_t epoch,
               const ProcessIdentity& next) {
  const TaskState state = StateOf(shard, worker);
  const TaskSlot& task = shard.tasks[worker];
  if (state.phase != Phase::kRunning || state.epoch >= epoch) return;
  if (task.killable.load(std::memory_order_seq_cst) != state.epoch) return;
  const ProcessIdentity former = LoadIdentity(task, state.epoch);
  if (ProbeLiveness(former) == Liveness::kDead) {
    MarkDead(shard, worker, state.epoch);
  } else if (former != next) {
    Evict(shard, worker, state.epoch);
  }
}

}  // namespace

LocalWorker::LocalWorker(const ShardMemory& lead, const ShardRules& rules, int worker,
                         std::uint32_t epoch, const ProcessIdentity& who,
                         const WaitOptions& options)
    : lead_(lead),
      rules_(rules),
      worker_(worker),
      epoch_(epoch),
      who_(who),
      options_(options),
      watch_(lead, options) {}

Result<std::shared_ptr<LocalWorker>> LocalWorker::Join(const ShardMemory& lead,
                                                       const ShardRules& rules, int worker,
                                                       const ProcessIdentity& who,
                                                       const WaitOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const std::uint32_t epoch,
                          passel::Join(lead, worker, who, options.names, options.eviction));
  return std::shared_ptr<LocalWorker>(new LocalWorker(lead, rules, worker, epoch, who, options));
}

Result<std::shared_ptr<LocalWorker>> LocalWorker::Represent(const ShardMemory& shard,
                                                            const ShardRules& rules, int worker,
                                                            std::uint32_t epoch,
                                                            const ProcessIdentity& who,
                                                            const WaitOptions& options) {
  if (worker < 0 || worker >= shard.num_workers) {
    return InvalidArgument(fmt::format("worker index {} is out of range: this job has {} workers",
                                       worker, shard.num_workers));
  }
  std::shared_ptr<LocalWorker> life(new LocalWorker(shard, rules, worker, epoch, who, options));
  EndFormer(shard, worker, epoch, who);
  Follow(shard, worker, epoch, who, options.eviction);
  PASSEL_RETURN_IF_ERROR(life->CheckAlive());
  return life;
}

Status LocalWorker::CheckAlive() const {
  const TaskState state = StateOf(lead_, worker_);
  if (state == TaskState{epoch_, Phase::kRunning}) return {};
  return Aborted(fmt::format("{} is fenced off: it was {} while it did not answer; start it again",
                             options_.names(worker_),
                             state.phase == Phase::kEvicted ? "evicted" : "taken for dead"));
}

void LocalWorker::Heartbeat() {
  // Relaxed: a time stamp that orders nothing.
  lead_.tasks[worker_].heartbeat_ns.store(MonotonicNs(), std::memory_order_relaxed);
}

}  // namespace passel
