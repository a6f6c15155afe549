// arena_host.h - a job whose shards are arenas, all opened by this process.

#pragma once

#include <fcntl.h>

#include <memory>
#include <vector>

#include "conformance/store_suite.h"
#include "shm/arena.h"

namespace passel::testing {

inline shm::Arena MakeArena(const StorePlan& plan, int shard) {
  shm::ArenaOptions options;
  options.job_id = "conformance";
  const MemoryBudget budget{std::uint64_t{1} << 32, "the test"};
  Result<shm::Arena> arena = shm::Arena::Create(plan, shard, options, budget);
  PASSEL_CHECK(arena.ok(), arena.status().message().c_str());
  arena->Publish();
  return std::move(*arena);
}

class ArenaHost final : public StoreHost {
 public:
  /// `one_mapping`: all workers use the creator's mapping. Else each adopts a descriptor of its
  /// own, which maps the same memory once more, at another address.
  ArenaHost(const StorePlan& plan, bool one_mapping) : plan_(plan), one_mapping_(one_mapping) {
    for (int s = 0; s < plan.variables.shards(); ++s) {
      created_.push_back(std::make_unique<shm::Arena>(MakeArena(plan, s)));
    }
  }

  Result<std::unique_ptr<ParameterStore>> Open(int worker, const WaitOptions& options) override {
    std::vector<ShardMemory> memory = Memory();
    if (!one_mapping_) {
      for (std::size_t s = 0; s < created_.size(); ++s) {
        FileDescriptor fd(::fcntl(created_[s]->fd(), F_DUPFD_CLOEXEC, 0));
        PASSEL_ASSIGN_OR_RETURN(shm::Arena arena, shm::Arena::Adopt(std::move(fd)));
        PASSEL_CHECK(arena.memory().values != memory[s].values, "a mapping of its own");
        memory[s] = arena.memory();
        const std::lock_guard lock(mutex_);
        adopted_.push_back(std::make_unique<shm::Arena>(std::move(arena)));
      }
    }
    return OpenStore(plan_, memory, worker, SelfIdentity(), options);
  }

  std::vector<ShardMemory> Memory() override {
    std::vector<ShardMemory> memory;
    for (const auto& arena : created_) memory.push_back(arena->memory());
    return memory;
  }

 private:
  const StorePlan plan_;
  const bool one_mapping_;
  std::vector<std::unique_ptr<shm::Arena>> created_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<shm::Arena>> adopted_;
};

}  // namespace passel::testing
