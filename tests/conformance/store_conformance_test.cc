// The conformance suite on the heap of one process, and on arenas, each worker with mappings of its
// own.

#include "store_conformance.h"
#include "conformance/arena_host.h"
#include "conformance/heap_host.h"

namespace passel::testing {
namespace {

StoreCase OnTheHeap(int shards) {
  return {"OnTheHeapWith" + std::to_string(shards), shards,
          [](const StorePlan& plan) { return std::make_unique<HeapHost>(plan); }};
}

StoreCase OnArenas(int shards) {
  return {"OnArenas" + std::to_string(shards), shards, [](const StorePlan& plan) {
            return std::make_unique<ArenaHost>(plan, /*one_mapping=*/false);
          }};
}

// One shard and several: each on one of the two.
const std::vector<StoreCase> kHeapCases = {OnTheHeap(1)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(InProcess, kHeapCases);

const std::vector<StoreCase> kArenaCases = {OnArenas(3)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(SharedMemory, kArenaCases);

}  // namespace
}  // namespace passel::testing
