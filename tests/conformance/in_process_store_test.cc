// The conformance suite on the heap of one process.

#include "conformance/heap_host.h"
#include "store_conformance.h"

namespace passel::testing {
namespace {

StoreCase Case(int shards) {
  return {"OnTheHeapWith" + std::to_string(shards), shards,
          [](const StorePlan& plan) { return std::make_unique<HeapHost>(plan); }};
}

INSTANTIATE_TEST_SUITE_P(InProcess, StoreConformance,
                         ::testing::Combine(::testing::Values(Case(1), Case(3)),
                                            ::testing::ValuesIn(kAllModes)),
                         NameOfCase);

}  // namespace
}  // namespace passel::testing
