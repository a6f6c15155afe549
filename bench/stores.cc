#include "bench/stores.h"

#include <utility>

#include "base/futex.h"
#include "base/process_identity.h"
#include "optim/update_kernels.h"
#include "store/block_claims.h"
#include "store/local_lead.h"
#include "store/local_shard.h"
#include "store/sweep_order.h"

namespace passel::bench {
namespace {

// LocalShard with another Apply() and ApplyRound(). It leaves out what only matters when a worker
// dies: half applied counts, taking claims over.
class VariantShard final : public Shard {
 public:
  VariantShard(std::unique_ptr<LocalShard> shard, const ShardMemory& memory,
               const OptimizerConfig& optimizer, int worker, const Sweep& sweep)
      : shard_(std::move(shard)),
        memory_(memory),
        optimizer_(optimizer),
        worker_(worker),
        sweep_(sweep),
        order_(memory.num_blocks, worker, memory.num_workers),
        random_(StreamSeed(7, static_cast<std::uint64_t>(worker))),
        todo_(memory.num_blocks),
        mean_(memory.block_floats),
        saved_(memory.block_floats * 4) {}

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
  std::vector<Member> HoldersIn(std::uint64_t round) const override {
    return shard_->HoldersIn(round);
  }

  Status Apply(int slot, Deadline deadline, Version* version_before) override {
    const std::int64_t step =
        memory_.state->optimizer_step.fetch_add(1, std::memory_order_relaxed) + 1;
    const StepScalars scalars = Prepare(optimizer_, step);
    const float* gradient = memory_.Gradient(worker_, slot);
    if (sweep_.claims == Sweep::Claims::kNone && sweep_.start == Sweep::Start::kZero) {
      passel::Apply(scalars, memory_.values, memory_.slots, gradient, memory_.floats);
    } else {
      PASSEL_RETURN_IF_ERROR(SweepBlocks(
          deadline, [&](std::size_t b) { ApplyTo(scalars, b, gradient + memory_.BlockBegin(b)); }));
    }
    *version_before = memory_.state->version.fetch_add(1, std::memory_order_acq_rel);
    return {};
  }

  Status ApplyRound(const RoundGrant& grant, Deadline deadline) override {
    if (grant.count == 0) return {};
    std::vector<const float*> all;
    for (int k = 0; k < memory_.num_workers; ++k) {
      if (grant.Counts(k)) all.push_back(memory_.Gradient(k, 0));
    }
    std::vector<const float*> here(all.size());
    const StepScalars scalars = Prepare(optimizer_, static_cast<std::int64_t>(grant.round));
    PASSEL_RETURN_IF_ERROR(SweepBlocks(
        deadline,
        [&](std::size_t b) {
          BlockState& block = memory_.blocks[b];
          if (block.round.load(std::memory_order_acquire) >= grant.round) return;
          const std::size_t begin = memory_.BlockBegin(b);
          const std::size_t n = memory_.BlockSize(b);
          if (sweep_.undo) {
            CopyValues(saved_.data(), memory_.values + begin, n);
            for (int s = 0; s < memory_.num_slots; ++s) {
              CopyValues(saved_.data() + static_cast<std::size_t>(s + 1) * memory_.block_floats,
                         memory_.slots[s] + begin, n);
            }
          }
          for (std::size_t k = 0; k < all.size(); ++k) here[k] = all[k] + begin;
          SumGradients(mean_.data(), here.data(), grant.count, static_cast<float>(grant.count), n);
          ApplyTo(scalars, b, mean_.data());
          block.round.store(grant.round, std::memory_order_release);
        },
        grant.round));
    // As LocalShard: whoever comes first raises them.
    std::uint64_t version = memory_.state->version.load(std::memory_order_relaxed);
    while (version < grant.round && !memory_.state->version.compare_exchange_weak(
                                        version, grant.round, std::memory_order_seq_cst)) {
    }
    return {};
  }

 private:
  void ApplyTo(const StepScalars& scalars, std::size_t b, const float* gradient) {
    const std::size_t begin = memory_.BlockBegin(b);
    float* slots[kMaxSlots] = {};
    for (int s = 0; s < memory_.num_slots; ++s) slots[s] = memory_.slots[s] + begin;
    passel::Apply(scalars, memory_.values + begin, slots, gradient, memory_.BlockSize(b));
  }

  // All blocks, into todo_.
  void ListBlocks() {
    const std::size_t blocks = memory_.num_blocks;
    if (sweep_.start == Sweep::Start::kThereAndBack) {
      std::size_t listed = 0;
      order_.Pass([&](std::size_t begin, std::size_t end) {
        for (std::size_t b = begin; b < end; ++b) todo_[listed++] = static_cast<std::uint32_t>(b);
      });
      return;
    }
    const std::size_t start = FirstBlock();
    for (std::size_t i = 0; i < blocks; ++i) {
      todo_[i] = static_cast<std::uint32_t>((i + start) % blocks);
    }
  }

  std::size_t FirstBlock() {
    const std::size_t blocks = memory_.num_blocks;
    switch (sweep_.start) {
      case Sweep::Start::kThereAndBack:
      case Sweep::Start::kZero:
        return 0;
      case Sweep::Start::kOffset:
        return blocks * static_cast<std::size_t>(worker_) /
               static_cast<std::size_t>(memory_.num_workers);
      case Sweep::Start::kRandom:
        return random_.Below(blocks);
    }
    return 0;
  }

  // `round`: blocks that have seen it need no claim; 0: none has.
  template <typename Body>
  Status SweepBlocks(Deadline deadline, Body&& body, std::uint64_t round = 0) {
    const Claim mine{1, worker_};
    const std::size_t blocks = memory_.num_blocks;
    ListBlocks();
    std::size_t left = blocks;
    for (int pass = 1; left > 0; ++pass) {
      const bool go_ahead = sweep_.claims == Sweep::Claims::kNone ||
                            (sweep_.claims == Sweep::Claims::kAdvisory && pass > sweep_.passes);
      std::size_t busy = 0;
      for (std::size_t i = 0; i < left; ++i) {
        BlockState& block = memory_.blocks[todo_[i]];
        if (round != 0 && block.round.load(std::memory_order_acquire) >= round) continue;
        if (go_ahead) {
          body(todo_[i]);
        } else if (TryClaim(block, mine)) {
          body(todo_[i]);
          ReleaseClaim(block, mine);
        } else {
          todo_[busy++] = todo_[i];
        }
      }
      left = busy;
      for (int i = 0; left > 0 && i < sweep_.pause; ++i) SpinPause();
      if (left > 0 && pass % 1024 == 0 && deadline.Expired()) {
        return DeadlineExceeded("a block of the variables stayed busy");
      }
    }
    return {};
  }

  const std::unique_ptr<LocalShard> shard_;
  const ShardMemory memory_;
  const OptimizerConfig optimizer_;
  const int worker_;
  const Sweep sweep_;
  SweepOrder order_;
  Random random_;
  std::vector<std::uint32_t> todo_;  // [num_blocks]
  std::vector<float> mean_;          // [block_floats]
  std::vector<float> saved_;         // [4][block_floats]
};

}  // namespace

Result<std::unique_ptr<ParameterStore>> OpenVariantStore(const StorePlan& plan,
                                                         const ShardMemory& memory, int worker,
                                                         const WaitOptions& options,
                                                         const Sweep& sweep) {
  PASSEL_ASSIGN_OR_RETURN(const std::shared_ptr<LocalWorker> life,
                          LocalWorker::Join(memory, plan.Rules(), worker, SelfIdentity(), options));
  std::vector<std::unique_ptr<Shard>> shards;
  shards.push_back(std::make_unique<VariantShard>(std::make_unique<LocalShard>(memory, life),
                                                  memory, plan.optimizer, worker, sweep));
  return MakeStore(plan, worker, std::make_unique<LocalLead>(life), std::move(shards));
}

}  // namespace passel::bench
