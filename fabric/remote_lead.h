// remote_lead.h - the lead behind messages.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "fabric/remote_worker.h"
#include "store/lead.h"

namespace passel::fabric {

class RemoteLead final : public Lead {
 public:
  explicit RemoteLead(std::shared_ptr<RemoteWorker> worker) : worker_(std::move(worker)) {}

  Status CheckAlive() const override { return worker_->state().alive; }
  bool stopped() const override { return worker_->state().stopped; }
  std::int64_t global_step() const override { return worker_->state().global_step; }
  std::uint64_t completed_round() const override { return worker_->state().completed_round; }
  ModeWord CurrentMode() const override { return ModeWord::Unpack(worker_->state().mode); }
  bool ChangeDue() override { return worker_->state().change_due; }
  std::uint64_t ClockLead() const override { return worker_->state().clock_lead; }
  Status Leave(Phase end) override;
  void SayAlive() override;
  void Stop() override;
  std::vector<Member> membership() const override;
  std::vector<Member> Missing(WaitingOn what, std::uint64_t number) const override;
  WorkerCounters& counters() override { return worker_->counters; }
  Status Restore(const JobProgress& progress) override;
  Status CountUpdate(std::int64_t* global_step) override;
  Status AwaitSlowest(Deadline deadline) override;
  Result<bool> RoundDecided(std::uint64_t round) const override;
  Status Arrive(std::uint64_t round) override;
  Result<RoundGrant> AwaitRound(std::uint64_t round, Deadline deadline) override;
  Status FinishRound(const RoundGrant& grant) override;
  bool AwaitCompletion(std::uint64_t round, Deadline deadline) override;
  Status DecideNoMore() override;
  Result<std::optional<std::uint64_t>> AwaitChange(Deadline deadline) override;
  Status PublishChange() override;
  Status EnterMode(const ModeWord& mode) override;

 private:
  void BeginRound(std::uint64_t round, std::uint16_t flags);

  const std::shared_ptr<RemoteWorker> worker_;
  bool bounded_ = false;  // the mode that this worker goes by
};

}  // namespace passel::fabric
