// heap_host.h - a job whose shards are on the heap of this process.

#pragma once

#include <memory>
#include <vector>

#include "conformance/store_suite.h"
#include "store/open_store.h"

namespace passel::testing {

class HeapHost final : public StoreHost {
 public:
  explicit HeapHost(const StorePlan& plan) {
    auto arena = InProcessArena::Create(plan);
    PASSEL_CHECK(arena.ok(), arena.status().message().c_str());
    arena_ = std::move(*arena);
  }
  Result<std::unique_ptr<ParameterStore>> Open(int worker, const WaitOptions& options) override {
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

}  // namespace passel::testing
