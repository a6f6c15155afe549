// A changing mode, and meetings, on the heap of one process and on arenas.

#include "conformance/arena_host.h"
#include "conformance/heap_host.h"
#include "conformance/meeting_conformance.h"
#include "conformance/mode_change_conformance.h"

namespace passel::testing {
namespace {

#if defined(PASSEL_ATOMIC_VALUES)
constexpr bool kOneMapping = true;  // ThreadSanitizer cannot follow one memory at two addresses
#else
constexpr bool kOneMapping = false;
#endif

StoreCase OnHeap(int shards) {
  return {"Heap" + std::to_string(shards), shards,
          [](const StorePlan& plan) { return std::make_unique<HeapHost>(plan); }};
}
StoreCase OnArenas(int shards) {
  return {"Arenas" + std::to_string(shards), shards,
          [](const StorePlan& plan) { return std::make_unique<ArenaHost>(plan, kOneMapping); }};
}

INSTANTIATE_TEST_SUITE_P(Stores, ModeChange, ::testing::Values(OnHeap(1), OnArenas(3)),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Stores, MeetingConformance, ::testing::Values(OnHeap(1), OnArenas(3)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace passel::testing
