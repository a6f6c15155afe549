#include "bench/stores.h"

#include <utility>

#include "base/process_identity.h"
#include "optim/update_kernels.h"
#include "store/local_lead.h"
#include "store/local_shard.h"

namespace passel::bench {
namespace {

// LocalShard with another Apply().
class NaiveShard final : public Shard {
 public:
  NaiveShard(std::unique_ptr<LocalShard> shard, const ShardMemory& memory,
             const OptimizerConfig& optimizer, int worker)
      : shard_(std::move(shard)), memory_(memory), optimizer_(optimizer), worker_(worker) {}

  Status Pull(PulledShard* pulled) override { return shard_->Pull(pulled); }
  void CopyAll(float* out) override { shard_->CopyAll(out); }
  float* gradient(int slot) const override { return shard_->gradient(slot); }
  int gradient_slots() const override { return shard_->gradient_slots(); }
  float* contents(int k) override { return shard_->contents(k); }
  Status Open(const ShardStart& start) override { return shard_->Open(start); }
  bool initialized() const override { return shard_->initialized(); }
  Status WaitUntilInitialized(Deadline d) override { return shard_->WaitUntilInitialized(d); }
  void Leave(Phase end) override { shard_->Leave(end); }
  void Stop() override { shard_->Stop(); }
  Status EnterMode(const ModeWord& mode) override { return shard_->EnterMode(mode); }
  Status PrepareChange(std::uint64_t step) override { return shard_->PrepareChange(step); }
  Status Stage(int slot) override { return shard_->Stage(slot); }
  Status ApplyRound(const RoundGrant& grant, Deadline deadline) override {
    return shard_->ApplyRound(grant, deadline);
  }
  std::vector<Member> HoldersIn(std::uint64_t round) const override {
    return shard_->HoldersIn(round);
  }
  Result<std::uint32_t> SetRates(const RatesStep& step) override { return shard_->SetRates(step); }

  Status Apply(int slot, Deadline, Version* version_before) override {
    const std::int64_t step =
        memory_.state->optimizer_step.fetch_add(1, std::memory_order_relaxed) + 1;
    passel::Apply(Prepare(optimizer_, step), memory_.values, memory_.slots,
                  memory_.Gradient(worker_, slot), memory_.floats);
    *version_before = memory_.state->version.fetch_add(1, std::memory_order_acq_rel);
    return {};
  }

 private:
  const std::unique_ptr<LocalShard> shard_;
  const ShardMemory memory_;
  const OptimizerConfig optimizer_;
  const int worker_;
};

}  // namespace

Result<std::unique_ptr<ParameterStore>> OpenNaiveStore(const StorePlan& plan,
                                                       const ShardMemory& memory, int worker,
                                                       const WaitOptions& options) {
  PASSEL_ASSIGN_OR_RETURN(const std::shared_ptr<LocalWorker> life,
                          LocalWorker::Join(memory, plan.Rules(), worker, SelfIdentity(), options));
  std::vector<std::unique_ptr<Shard>> shards;
  shards.push_back(std::make_unique<NaiveShard>(std::make_unique<LocalShard>(memory, life), memory,
                                                plan.optimizer, worker));
  return MakeStore(plan, worker, std::make_unique<LocalLead>(life), std::move(shards));
}

}  // namespace passel::bench
