#include <fmt/core.h>

#include <new>

#include "base/check.h"
#include "fabric/client.h"
#include "fabric/here.h"
#include "fabric/remote_lead.h"
#include "fabric/remote_shard.h"
#include "store/open_store.h"

namespace passel::fabric {
namespace {

// Also where ps/0 is here, or all other ps of this shard's host are: who reaches it by messages
// looks at its own slots, and has no others.
Result<std::unique_ptr<Shard>> OpenHere(int shard, const std::shared_ptr<RemoteWorker>& remote) {
  const ShardMemory& memory = remote->options.here.memory.at(shard);
  std::shared_ptr<LocalWorker> life = remote->life;
  if (shard != 0) {
    PASSEL_ASSIGN_OR_RETURN(
        life, LocalWorker::Represent(memory, remote->plan.Rules(), remote->worker, remote->epoch(),
                                     remote->options.here.who, remote->options.waits));
  }
  return std::unique_ptr<Shard>(std::make_unique<ShardHere>(memory, std::move(life), remote));
}

}  // namespace

Result<std::unique_ptr<ParameterStore>> OpenRemoteStore(const StorePlan& plan, int worker,
                                                        std::vector<Connector> connectors,
                                                        const ClientOptions& options,
                                                        std::function<MessageCount()>* count) {
  PASSEL_CHECK(static_cast<int>(connectors.size()) == plan.variables.shards(),
               "a connector for each ps");
  PASSEL_CHECK(options.here.memory.size() < connectors.size(), "a ps that is elsewhere");
  auto remote = std::make_shared<RemoteWorker>(plan, worker, std::move(connectors), options);
  std::vector<std::unique_ptr<Shard>> shards(static_cast<std::size_t>(plan.variables.shards()));
  try {
    for (int s = 0; s < plan.variables.shards(); ++s) {
      if (!remote->reaches(s)) continue;
      shards[static_cast<std::size_t>(s)] = std::make_unique<RemoteShard>(remote, s);
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(
        fmt::format("no memory for copies of {} values and their gradients: use a smaller model",
                    plan.variables.TotalElements()));
  }
  std::unique_ptr<Lead> lead;
  if (remote->lead_is_here()) {
    PASSEL_ASSIGN_OR_RETURN(remote->life,
                            LocalWorker::Join(options.here.memory.at(0), plan.Rules(), worker,
                                              options.here.who, options.waits));
    lead = std::make_unique<LeadHere>(remote);
  } else {
    lead = std::make_unique<RemoteLead>(remote);
  }
  Status joined = remote->Join();
  for (int s = 0; joined.ok() && s < plan.variables.shards(); ++s) {
    if (remote->reaches(s)) continue;
    Result<std::unique_ptr<Shard>> here = OpenHere(s, remote);
    joined = here.status();
    if (here.ok()) shards[static_cast<std::size_t>(s)] = std::move(*here);
  }
  if (!joined.ok()) {
    if (remote->epoch() != 0) (void)lead->Leave(Phase::kLeft);
    return joined;
  }
  if (count != nullptr) {
    *count = [seen = std::weak_ptr(remote)] {
      const std::shared_ptr<RemoteWorker> there = seen.lock();
      return there == nullptr ? MessageCount() : there->count();
    };
  }
  return MakeStore(plan, worker, std::move(lead), std::move(shards), options.prefetch);
}

}  // namespace passel::fabric
