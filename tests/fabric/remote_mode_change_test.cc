// The mode changes while workers train over messages.

#include "conformance/mode_change_conformance.h"
#include "fabric/remote_ps.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

StoreCase ChangesOverMessages(const std::string& name, int shards, const Faults& faults) {
  return {name + std::to_string(shards), shards,
          [faults](const StorePlan& plan) {
            return std::make_unique<RemoteHost>(plan, faults, /*seed=*/7);
          },
          /*part=*/faults.drop > 0 ? 5 : 1};
}

INSTANTIATE_TEST_SUITE_P(
    Fabric, ModeChange,
    ::testing::ValuesIn(Cases<StoreCase>({ChangesOverMessages("Plain", 1, {}),
                                          ChangesOverMessages("Faulty", 3, kBadPipes)},
                                         {ChangesOverMessages("Faulty", 3, kBadPipes)})),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace passel::testing
