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

INSTANTIATE_TEST_SUITE_P(SharedMemory, StoreConformance,
                         ::testing::Combine(::testing::Values(Case(1), Case(3)),
                                            ::testing::ValuesIn(kAllModes)),
                         NameOfCase);

}  // namespace
}  // namespace passel::testing
