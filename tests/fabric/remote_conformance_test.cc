// The conformance suite over messages: every ps in a process of its own that shares no memory with
// the workers; then the same over pipes that lose, repeat, delay and break.

#include "fabric/remote_ps.h"
#include "store_conformance.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

StoreCase OverMessages(const std::string& name, int shards, const Faults& faults) {
  return {name + std::to_string(shards), shards, [faults](const StorePlan& plan) {
            return std::make_unique<RemoteHost>(plan, faults, /*seed=*/7);
          }};
}

const std::vector<StoreCase> kPlain = Cases<StoreCase>({OverMessages("OverMessages", 1, {})}, {});
PASSEL_INSTANTIATE_STORE_CONFORMANCE(Plain, kPlain);

const std::vector<StoreCase> kFaulty = {OverMessages("OverBadPipes", 3, kBadPipes)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(Faulty, kFaulty);

}  // namespace
}  // namespace passel::testing
