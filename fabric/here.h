// here.h - lead and shards whose memory this process shares, in a store that has others by
// messages.

#pragma once

#include <memory>

#include "fabric/remote_worker.h"
#include "store/local_lead.h"
#include "store/local_shard.h"

namespace passel::fabric {

class LeadHere final : public LocalLead {
 public:
  /// REQUIRES: `remote->life` has joined.
  explicit LeadHere(std::shared_ptr<RemoteWorker> remote);

  void Stop() override;
  Status AwaitSlowest(Deadline deadline) override;
  Status Arrive(std::uint64_t round) override;
  Status EnterMode(const ModeWord& mode) override;

 private:
  const std::shared_ptr<RemoteWorker> remote_;
};

class ShardHere final : public LocalShard {
 public:
  ShardHere(const ShardMemory& memory, std::shared_ptr<LocalWorker> life,
            std::shared_ptr<RemoteWorker> remote);

  Status Stage(int slot) override;
  Status ApplyRound(const RoundGrant& grant, Deadline deadline) override;

 private:
  const std::shared_ptr<RemoteWorker> remote_;
  EventWord& event_;
};

}  // namespace passel::fabric
