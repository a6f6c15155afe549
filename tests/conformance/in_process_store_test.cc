// The conformance suite on the heap of one process.

#include "conformance/heap_host.h"
#include "store_conformance.h"

namespace passel::testing {
namespace {

StoreCase Case(int shards) {
  return {"OnTheHeapWith" + std::to_string(shards), shards,
          [](const StorePlan& plan) { return std::make_unique<HeapHost>(plan); }};
}

const std::vector<StoreCase> kCases = {Case(1), Case(3)};
PASSEL_INSTANTIATE_STORE_CONFORMANCE(InProcess, kCases);

}  // namespace
}  // namespace passel::testing
