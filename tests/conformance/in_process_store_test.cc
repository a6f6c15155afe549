// The conformance suite on the heap of one process.

#include "store_conformance.h"

namespace passel::testing {
namespace {

class InProcessHost final : public StoreHost {
 public:
  explicit InProcessHost(const StorePlan& plan) {
    auto arena = InProcessArena::Create(plan);
    PASSEL_CHECK(arena.ok(), arena.status().message().c_str());
    arena_ = std::move(*arena);
  }
  Result<std::unique_ptr<ParameterStore>> Open(int worker, const EngineOptions& options) override {
    return arena_->Open(worker, options);
  }
  std::vector<ShardMemory> Memory() override {
    std::vector<ShardMemory> memory;
    for (int s = 0; s < arena_->plan().variables.shards(); ++s) memory.push_back(arena_->shard(s));
    return memory;
  }

 private:
  std::unique_ptr<InProcessArena> arena_;
};

StoreCase Case(int shards) {
  return {"OnTheHeapWith" + std::to_string(shards), shards,
          [](const StorePlan& plan) { return std::make_unique<InProcessHost>(plan); }};
}

INSTANTIATE_TEST_SUITE_P(InProcess, StoreConformance,
                         ::testing::Combine(::testing::Values(Case(1), Case(3)),
                                            ::testing::ValuesIn(kAllModes)),
                         NameOfCase);

}  // namespace
}  // namespace passel::testing
