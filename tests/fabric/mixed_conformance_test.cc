// The conformance suite over a mix of local and remote shards: the workers are on two hosts, of
// which each has some of the ps. A worker shares the memory of those of its own host, and reaches
// the others by messages.

#include "fabric/remote_ps.h"
#include "store_conformance.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

// Even ps are on one host with even workers, odd ones on the other; `crossed`: the workers the
// other way round, so that ps/0 is elsewhere for worker 0.
StoreCase MixOfHosts(int shards, bool crossed) {
  return {"MixOfHosts", shards, [crossed](const StorePlan& plan) {
            auto host = std::make_unique<RemoteHost>(plan, Faults(), /*seed=*/7);
            host->shares = [crossed](int worker, int shard) {
              return ((worker & 1) == (shard & 1)) != crossed;
            };
            return host;
          }};
}

const std::vector<StoreCase> kMixed = {CarrierOfTests() == nullptr ? MixOfHosts(2, true)
                                                                   : MixOfHosts(3, false)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(Mixed, kMixed);

}  // namespace
}  // namespace passel::testing
