#include "fabric/here.h"

#include "fabric/remote_shard.h"

namespace passel::fabric {

LeadHere::LeadHere(std::shared_ptr<RemoteWorker> remote)
    : LocalLead(remote->life), remote_(std::move(remote)) {}

void LeadHere::Stop() {
  remote_->Stop();
  LocalLead::Stop();
}

Status LeadHere::AwaitSlowest(Deadline deadline) {
  remote_->near_enough_next = false;
  const bool at_once = NearEnough(0);
  PASSEL_RETURN_IF_ERROR(LocalLead::AwaitSlowest(deadline));
  if (!at_once) remote_->DropValues();
  remote_->near_enough_next = NearEnough(1);
  return {};
}

Status LeadHere::Arrive(std::uint64_t round) {
  PASSEL_RETURN_IF_ERROR(remote_->EndStages());
  PASSEL_RETURN_IF_ERROR(LocalLead::Arrive(round));
  remote_->arriving = round;
  return {};
}

Status LeadHere::EnterMode(const ModeWord& mode) {
  remote_->arriving = 0;
  remote_->near_enough_next = false;
  return LocalLead::EnterMode(mode);
}

ShardHere::ShardHere(const ShardMemory& memory, std::shared_ptr<LocalWorker> life,
                     std::shared_ptr<RemoteWorker> remote)
    : LocalShard(memory, std::move(life)),
      remote_(std::move(remote)),
      event_(memory.state->event) {}

Status ShardHere::Stage(int slot) {
  // What is in place is not the gradient that the round may count.
  if (remote_->arriving > remote_->completed_round()) {
    return Aborted("ps/0 has not said whether the last gradient arrived: start this worker again");
  }
  PASSEL_RETURN_IF_ERROR(LocalShard::Stage(slot));
  // Release: others apply the round on the word of a lead that is elsewhere.
  Notify(event_);
  return {};
}

Status ShardHere::ApplyRound(const RoundGrant& grant, Deadline deadline) {
  remote_->BeginApplyRound(grant, deadline);              // others do theirs meanwhile
  (void)event_.sequence.load(std::memory_order_acquire);  // what was staged
  return LocalShard::ApplyRound(grant, deadline);
}

}  // namespace passel::fabric
