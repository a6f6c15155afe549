// local_worker.h - one life of a worker, as the engine that works for it in this process knows it.
//
// Its LocalLead and all its LocalShards share it. Used by one thread.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/process_identity.h"
#include "base/status.h"
#include "store/membership.h"
#include "store/shard_memory.h"
#include "store/shard_rules.h"
#include "store/wait_options.h"
#include "store/watch.h"

namespace passel {

class LocalWorker {
 public:
  /// Joins as worker `worker`. `lead` outlives it. Errors: see Join() in membership.h.
  static Result<std::shared_ptr<LocalWorker>> Join(const ShardMemory& lead, const ShardRules& rules,
                                                   int worker, const ProcessIdentity& who,
                                                   const WaitOptions& options);
  /// For a shard whose lead is the memory of another host, or that workers of another host reach:
  /// `who` stands there for the life `epoch` that the lead has given, and the shard's own slots are
  /// the members that reach it. A process of this host that is there in a former life is evicted.
  /// Errors:
  /// kInvalidArgument when the index is out of range; kAborted when a later life is there already.
  static Result<std::shared_ptr<LocalWorker>> Represent(const ShardMemory& shard,
                                                        const ShardRules& rules, int worker,
                                                        std::uint32_t epoch,
                                                        const ProcessIdentity& who,
                                                        const WaitOptions& options);

  const ShardMemory& lead() const { return lead_; }   ///< its slots are the members
  const ShardRules& rules() const { return rules_; }  ///< at first
  int index() const { return worker_; }
  std::uint32_t epoch() const { return epoch_; }
  const ProcessIdentity& identity() const { return who_; }
  const WaitOptions& options() const { return options_; }
  Watch& watch() { return watch_; }

  bool Alive() const { return StateOf(lead_, worker_) == TaskState{epoch_, Phase::kRunning}; }
  /// kAborted if this life was ended by others.
  Status CheckAlive() const;
  /// For who waits. Errors: kAborted; kInternal: somebody else does not answer, which ends the job.
  Status CheckWait() const { return watch_.failure().ok() ? CheckAlive() : watch_.failure(); }
  void Heartbeat();
  /// Called every now and then while a push waits for a block, by its thread. False: nobody wants
  /// that push any more, and it ends as at its deadline.
  std::function<bool()> while_blocked;

 private:
  LocalWorker(const ShardMemory& lead, const ShardRules& rules, int worker, std::uint32_t epoch,
              const ProcessIdentity& who, const WaitOptions& options);

  const ShardMemory lead_;
  const ShardRules rules_;
  const int worker_;
  const std::uint32_t epoch_;
  const ProcessIdentity who_;
  const WaitOptions options_;
  Watch watch_;
};

}  // namespace passel
