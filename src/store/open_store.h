// open_store.h - a worker's store: on shards that a carrier has, or that are mapped already; and
// such shards in this process's own memory.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "store/parameter_store.h"
#include "store/shard.h"
#include "store/store_plan.h"
#include "store/wait_options.h"

namespace passel {

/// The memory of all shards of one plan, on the heap: for measurements, tests, and the run that
/// ThreadSanitizer can judge (workers as threads). Outlives the stores that are opened on it.
class InProcessArena {
 public:
  /// Errors: kInvalidArgument for a plan that does not validate; kResourceExhausted.
  static Result<std::unique_ptr<InProcessArena>> Create(const StorePlan& plan);
  ~InProcessArena();

  /// The store of one worker. Errors: kAlreadyExists while that worker is running.
  Result<std::unique_ptr<ParameterStore>> Open(int worker, const WaitOptions& options = {});

  const StorePlan& plan() const { return plan_; }
  const ShardMemory& shard(int index) const { return memory_[static_cast<std::size_t>(index)]; }

 private:
  explicit InProcessArena(const StorePlan& plan) : plan_(plan) {}

  StorePlan plan_;
  std::vector<ShardMemory> memory_;
  std::vector<void*> allocations_;
};

/// What one shard has.
struct ShardBeginning {
  bool initialized = false;
  std::uint64_t cohort = 0;
  Version version = 0;
  std::int64_t global_step = 0, restored_step = 0;  ///< of the lead
};
ShardBeginning LookAtShard(const ShardMemory& shard);
/// Values that a former ps took with it are gone: to begin anew with some of the shards would look
/// like going on. `look` looks at all shards, at the lead last, and is called once or twice.
/// Errors: its own; kDataLoss, naming the ps.
Status CheckOneBeginning(const std::function<Result<std::vector<ShardBeginning>>()>& look);

/// The store of a worker that has joined: all of it goes by the mode in force. If it cannot, the
/// worker leaves again. `prefetch`: ShardedStore::Prefetch().
Result<std::unique_ptr<ParameterStore>> MakeStore(const StorePlan& plan, int worker,
                                                  std::unique_ptr<Lead> lead,
                                                  std::vector<std::unique_ptr<Shard>> shards,
                                                  bool prefetch = false);

/// The store of one worker on shards that are mapped or allocated already. Errors: kDataLoss when
/// one of them has lost its values, named as the ps that it is, and others have not; those of
/// Join() in store/membership.h.
Result<std::unique_ptr<ParameterStore>> OpenStore(const StorePlan& plan,
                                                  std::span<const ShardMemory> shards, int worker,
                                                  const ProcessIdentity& who,
                                                  const WaitOptions& options);

}  // namespace passel
