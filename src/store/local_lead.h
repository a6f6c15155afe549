// local_lead.h - the lead in memory that this process can address.
//
// One per worker; used by one thread, but for Stop() and the const functions.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "store/lead.h"
#include "store/local_worker.h"
#include "store/mode_change.h"

namespace passel {

class LocalLead : public Lead {
 public:
  /// For the worker that joined.
  explicit LocalLead(std::shared_ptr<LocalWorker> life);

  Status CheckAlive() const override {
    if (StateOf(memory_, worker_) == TaskState{epoch_, Phase::kRunning}) return {};
    return life_->CheckAlive();
  }
  bool stopped() const override { return memory_.state->stop.load(std::memory_order_acquire) != 0; }
  std::int64_t global_step() const override {
    return memory_.state->global_step.load(std::memory_order_acquire);
  }
  std::uint64_t completed_round() const override {
    return memory_.state->completed_round.load(std::memory_order_acquire);
  }
  ModeWord CurrentMode() const override { return passel::CurrentMode(memory_); }
  bool ChangeDue() override;
  std::uint64_t ClockLead() const override;
  Status Leave(Phase end) override;
  void SayAlive() override { life_->Heartbeat(); }
  void Stop() override;
  std::vector<Member> membership() const override { return Membership(memory_); }
  std::vector<Member> Missing(WaitingOn what, std::uint64_t number) const override;
  WorkerCounters& counters() override { return memory_.tasks[worker_].counters; }
  Status Restore(const JobProgress& progress) override;
  Status CountUpdate(std::int64_t* global_step) override;
  Status AwaitSlowest(Deadline deadline) override;
  Result<bool> RoundDecided(std::uint64_t round) const override {
    return DecidedRound(memory_) >= round;
  }
  Status Arrive(std::uint64_t round) override;
  Result<RoundGrant> AwaitRound(std::uint64_t round, Deadline deadline) override;
  Status FinishRound(const RoundGrant& grant) override;
  bool AwaitCompletion(std::uint64_t round, Deadline deadline) override;
  Status DecideNoMore() override;
  Result<std::optional<std::uint64_t>> AwaitChange(Deadline deadline) override;
  Status PublishChange() override;
  Status EnterMode(const ModeWord& mode) override;

  /// ssp: whether this worker would be near enough to the slowest after `steps` more of its own.
  bool NearEnough(std::uint64_t steps) const;

 private:
  template <typename Condition, typename BeforeSleep>
  bool Wait(Deadline deadline, Condition&& condition, BeforeSleep&& before_sleep) {
    const bool done =
        WaitFor(memory_.state->event, life_->options().spin, deadline, condition, [&] {
          life_->Heartbeat();
          before_sleep();
        });
    life_->Heartbeat();
    return done;
  }
  std::string Name(int worker) const { return life_->options().names(worker); }
  ModeWord RestoreMode(std::int64_t step);
  bool TryDecide(std::uint64_t round);
  std::uint32_t EndsWith(std::uint64_t round);
  bool HasArrivedAt(std::uint32_t number) const;
  bool Changed() const { return CurrentModeNumber(memory_) != mode_number_; }
  /// Nobody makes a step any more before the wish is the current mode.
  bool AllHaveArrived();
  std::uint64_t OwnClock() const;
  std::vector<Member> MissingIn(std::uint64_t round) const;
  std::vector<Member> TooFarBehind() const;

  const std::shared_ptr<LocalWorker> life_;
  const ShardMemory memory_;
  const int worker_;
  const std::uint32_t epoch_;
  ShardRules rules_;               // of the mode that this worker goes by
  std::uint32_t mode_number_ = 0;  // its number
  std::uint64_t seen_mode_ = 0;    // ModeWord in force when all had arrived at the change; 0: never
  bool left_ = false;
};

}  // namespace passel
