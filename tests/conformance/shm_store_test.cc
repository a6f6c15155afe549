// The conformance suite on arenas, each worker with mappings of its own.

#include "conformance/arena_host.h"
#include "store_conformance.h"

namespace passel::testing {
namespace {

StoreCase Case(int shards) {
  return {"OnArenas" + std::to_string(shards), shards, [](const StorePlan& plan) {
            return std::make_unique<ArenaHost>(plan, /*one_mapping=*/false);
          }};
}

const std::vector<StoreCase> kCases = {Case(1), Case(3)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(SharedMemory, kCases);

}  // namespace
}  // namespace passel::testing
