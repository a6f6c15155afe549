// The mode changes, and workers meet, while they train over messages.

#include "conformance/meeting_conformance.h"
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

const auto kCases = ::testing::ValuesIn(Cases<StoreCase>(
    {ChangesOverMessages("Plain", 1, {}), ChangesOverMessages("Faulty", 3, kBadPipes)},
    {ChangesOverMessages("Faulty", 3, kBadPipes)}));

INSTANTIATE_TEST_SUITE_P(Fabric, ModeChange, kCases,
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Fabric, MeetingConformance, kCases,
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace passel::testing
