// The conformance suite over libfabric: every ps in a process of its own.

#include "fabric/remote_ps.h"
#include "store_conformance.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

StoreCase Over(const std::string& name, const std::string& provider, int shards) {
  return {name + std::to_string(shards), shards, [provider](const StorePlan& plan) {
            return std::make_unique<RemoteHost>(plan, Faults(), /*seed=*/7, "",
                                                std::chrono::seconds(5), provider);
          }};
}

const std::vector<StoreCase> kTcp = {Over("OverTcp", "tcp;ofi_rxm", 1)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(Tcp, kTcp);

const std::vector<StoreCase> kShm =
    Cases<StoreCase>({Over("OverShm", "shm", 3)}, {});
PASSEL_INSTANTIATE_STORE_CONFORMANCE(Shm, kShm);

}  // namespace
}  // namespace passel::testing
