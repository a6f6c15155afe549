// client.h - the store of a worker that reaches ps tasks by messages: all of them, or some, while
// it shares the memory of the others.
//
// Each step is one request and one answer where there is one ps, a few with several: docs/fabric.md
// says which. What a worker asks at each step (Lead's const functions) is answered from the last
// answer of ps/0.
//
// A ps that comes back with its memory is found again; what was asked of it meanwhile waits.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/process_identity.h"
#include "fabric/pipe.h"
#include "fabric/session.h"
#include "store/parameter_store.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"
#include "store/wait_options.h"

namespace passel::fabric {

/// Shards, by index, whose memory this process shares with their ps. It outlives the store.
struct ShardsHere {
  std::map<int, ShardMemory> memory;
  ProcessIdentity who;  ///< this worker
};

struct ClientOptions {
  WaitOptions waits;  ///< for the proxies too; there `spin` and `eviction` are theirs
  SessionOptions session;
  /// How long a ps may take for what waits for nobody else, its return included; what waits for
  /// others may take so long beyond its deadline.
  std::chrono::nanoseconds answer_limit = std::chrono::seconds(10);
  ShardsHere here;  ///< all others are reached by messages
  /// Outside rounds the next step begins while a gradient travels: ShardedStore::Prefetch().
  bool prefetch = false;
};

/// Messages of one worker, over all its ps.
struct MessageCount {
  std::uint64_t sent = 0, received = 0;
  std::chrono::nanoseconds gone{0};  ///< for how long one of them cannot be reached
};

/// The store of worker `worker`, which joins. `connectors[s]` reach ps/s, but for those that are
/// here. REQUIRES: there is one that is not. Errors: those of Join()
/// in store/membership.h; kFailedPrecondition when a ps has another plan; kUnavailable,
/// kDeadlineExceeded, naming the ps. `count`, if not null, tells what is sent from then on, by any
/// thread; once the store is gone it tells of nothing.
Result<std::unique_ptr<ParameterStore>> OpenRemoteStore(
    const StorePlan& plan, int worker, std::vector<Connector> connectors,
    const ClientOptions& options, std::function<MessageCount()>* count = nullptr);

}  // namespace passel::fabric
