// The mode changes while workers train over messages, whose ps let this process see their memory.

#include "conformance/mode_change_conformance.h"
#include "fabric/remote_ps.h"
#include "shm/arena.h"
#include "support/sanitized.h"

namespace passel::testing {
namespace {

class SeenHost final : public RemoteHost {
 public:
  SeenHost(const StorePlan& plan, const Faults& faults) : RemoteHost(plan, faults, /*seed=*/7) {
    for (int s = 0; s < plan.variables.shards(); ++s) {
      Result<shm::Arena> arena = shm::Arena::Adopt(ps(s).arena());
      PASSEL_CHECK(arena.ok(), arena.status().message().c_str());
      arenas_.push_back(std::make_unique<shm::Arena>(std::move(*arena)));
    }
  }
  std::vector<ShardMemory> Memory() override {
    std::vector<ShardMemory> memory;
    for (const auto& arena : arenas_) memory.push_back(arena->memory());
    return memory;
  }

 private:
  std::vector<std::unique_ptr<shm::Arena>> arenas_;
};

StoreCase OverSeenMessages(const std::string& name, int shards, const Faults& faults) {
  return {name + std::to_string(shards), shards,
          [faults](const StorePlan& plan) { return std::make_unique<SeenHost>(plan, faults); },
          /*part=*/faults.drop > 0 ? 5 : 1};
}

INSTANTIATE_TEST_SUITE_P(Fabric, ModeChange,
                         ::testing::ValuesIn(Cases<StoreCase>(
                             {OverSeenMessages("Plain", 1, {}), OverSeenMessages("Plain", 3, {}),
                              OverSeenMessages("Faulty", 1, kBadPipes),
                              OverSeenMessages("Faulty", 3, kBadPipes)},
                             {OverSeenMessages("Faulty", 3, kBadPipes)})),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace passel::testing
