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

// Even ps and odd workers are on one host: ps/0 is elsewhere for the chief.
StoreCase ChangesOverAMix() {
  return {"Mixed2", 2, [](const StorePlan& plan) {
            auto host = std::make_unique<RemoteHost>(plan);
            host->shares = [](int worker, int shard) { return (worker & 1) != (shard & 1); };
            return host;
          }};
}

const auto kCases =
    ::testing::ValuesIn(Cases<StoreCase>({ChangesOverMessages("Plain", 1, {}), ChangesOverAMix(),
                                          ChangesOverMessages("Faulty", 3, kBadPipes)},
                                         {ChangesOverMessages("Faulty", 3, kBadPipes)}));

INSTANTIATE_TEST_SUITE_P(Fabric, ModeChange, kCases,
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(Fabric, MeetingConformance, kCases,
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace passel::testing
