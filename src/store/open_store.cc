#include "store/open_store.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "base/process_identity.h"
#include "store/local_lead.h"
#include "store/local_shard.h"
#include "store/sharded_store.h"

namespace passel {
namespace {

Status LostValues(std::size_t lost, std::size_t kept, std::uint64_t updates) {
  return DataLoss(fmt::format(
      "ps/{} has lost its values while ps/{} still has those of {} updates, and a part of them "
      "cannot be trained on",
      lost, kept, updates));
}

std::vector<ShardBeginning> LookAtShards(std::span<const ShardMemory> shards) {
  std::vector<ShardBeginning> seen(shards.size());
  for (std::size_t s = shards.size(); s-- > 0;) seen[s] = LookAtShard(shards[s]);
  return seen;
}

// The lead was looked at last: who trains has seen it open.
Status CheckSeen(std::span<const ShardBeginning> shards) {
  const ShardBeginning& lead = shards[0];
  for (std::size_t s = shards.size(); s-- > 1;) {
    if (!lead.initialized) {
      // But while a chief restores them, which it says first.
      if (shards[s].version > 0 && lead.global_step == 0)
        return LostValues(0, s, shards[s].version);
      continue;
    }
    if (!shards[s].initialized) return LostValues(s, 0, lead.version);
    if (shards[s].cohort != lead.cohort) {
      return DataLoss(fmt::format(
          "ps/{} and ps/0 have values of different beginnings of this job: one of them has lost "
          "its own",
          s));
    }
  }
  return {};
}

}  // namespace

ShardBeginning LookAtShard(const ShardMemory& shard) {
  const ShardState& state = *shard.state;
  ShardBeginning seen;
  seen.version = state.version.load(std::memory_order_acquire);
  seen.global_step = state.global_step.load(std::memory_order_acquire);
  seen.initialized = state.initialized.load(std::memory_order_acquire) != 0;
  // Relaxed: written before `initialized`.
  seen.cohort = state.cohort.load(std::memory_order_relaxed);
  seen.restored_step = state.restored_step.load(std::memory_order_relaxed);
  return seen;
}

Status CheckOneBeginning(const std::function<Result<std::vector<ShardBeginning>>()>& look) {
  PASSEL_ASSIGN_OR_RETURN(const std::vector<ShardBeginning> seen, look());
  if (CheckSeen(seen).ok()) return {};
  // The chief may have opened them while we looked, the lead last: now they are all open.
  PASSEL_ASSIGN_OR_RETURN(const std::vector<ShardBeginning> again, look());
  return CheckSeen(again);
}

Result<std::unique_ptr<ParameterStore>> OpenStore(const StorePlan& plan,
                                                  std::span<const ShardMemory> shards, int worker,
                                                  const ProcessIdentity& who,
                                                  const WaitOptions& options) {
  PASSEL_RETURN_IF_ERROR(CheckOneBeginning([&] { return Result(LookAtShards(shards)); }));
  PASSEL_ASSIGN_OR_RETURN(const std::shared_ptr<LocalWorker> life,
                          LocalWorker::Join(shards[0], plan.Rules(), worker, who, options));
  std::vector<std::unique_ptr<Shard>> joined;
  for (const ShardMemory& memory : shards) {
    joined.push_back(std::make_unique<LocalShard>(memory, life));
  }
  return MakeStore(plan, worker, std::make_unique<LocalLead>(life), std::move(joined));
}

Result<std::unique_ptr<ParameterStore>> MakeStore(const StorePlan& plan, int worker,
                                                  std::unique_ptr<Lead> lead,
                                                  std::vector<std::unique_ptr<Shard>> shards,
                                                  bool prefetch) {
  auto store = std::make_unique<ShardedStore>(plan.variables, plan.Rules(), worker, std::move(lead),
                                              std::move(shards));
  if (prefetch) store->Prefetch();
  // From our join on the mode does not change without us.
  if (const Status entered = store->EnterCurrentMode(); !entered.ok()) {
    (void)store->LeaveForNow();
    return entered;
  }
  return std::unique_ptr<ParameterStore>(std::move(store));
}

Result<std::unique_ptr<InProcessArena>> InProcessArena::Create(const StorePlan& plan) {
  PASSEL_RETURN_IF_ERROR(plan.Validate());
  std::unique_ptr<InProcessArena> arena(new InProcessArena(plan));
  for (int s = 0; s < plan.variables.shards(); ++s) {
    ShardMemory memory = plan.ShapeOf(s);
    bool short_of_memory = false;
    const auto allocate = [&]<typename T>(T*& part, std::size_t count) {
      const std::size_t rounded = (count * sizeof(T) + 127) / 128 * 128 + 128;
      part = static_cast<T*>(std::aligned_alloc(128, rounded));
      short_of_memory |= part == nullptr;
      if (part == nullptr) return;
      std::memset(static_cast<void*>(part), 0, rounded);
      arena->allocations_.push_back(part);
    };
    const auto workers = static_cast<std::size_t>(plan.num_workers);
    allocate(memory.state, 1);
    allocate(memory.tasks, workers);
    allocate(memory.blocks, memory.num_blocks);
    allocate(memory.events, 1);
    allocate(memory.values, memory.floats);
    for (int k = 0; k < memory.num_slots; ++k) allocate(memory.slots[k], memory.floats);
    allocate(memory.gradients,
             memory.floats * workers * static_cast<std::size_t>(plan.gradient_slots));
    allocate(memory.undo,
             memory.PieceFloats() * workers * static_cast<std::size_t>(1 + memory.num_slots));
    if (short_of_memory) {
      return ResourceExhausted(fmt::format(
          "no memory for the {} values of shard {}: use a smaller model", memory.floats, s));
    }
    FormatShard(memory, plan.mode);
    arena->memory_.push_back(memory);
  }
  return arena;
}

InProcessArena::~InProcessArena() {
  for (void* p : allocations_) std::free(p);
}

Result<std::unique_ptr<ParameterStore>> InProcessArena::Open(int worker,
                                                             const WaitOptions& options) {
  return OpenStore(plan_, memory_, worker, SelfIdentity(), options);
}

}  // namespace passel
