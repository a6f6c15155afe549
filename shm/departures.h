// departures.h - who has died, left or was evicted: each told once, by every task that looks.

#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cluster/worker_names.h"
#include "store/membership.h"

namespace passel::shm {

class Departures {
 public:
  explicit Departures(WorkerNames names) : names_(std::move(names)) {}

  /// Logs what has happened since the last look. What had happened before the first is old.
  void Look(const ShardMemory& memory) {
    const bool first = told_.empty();
    told_.resize(static_cast<std::size_t>(memory.num_workers));
    for (const Member& m : Membership(memory)) {
      const char* const what = m.phase == Phase::kDead      ? "died"
                               : m.phase == Phase::kLeft    ? "was told to go, and left"
                               : m.phase == Phase::kEvicted ? "did not answer, and was evicted"
                                                            : nullptr;
      std::uint32_t& told = told_[static_cast<std::size_t>(m.worker)];
      // Life 0 is of those who never came.
      if (what == nullptr || told == m.epoch) continue;
      told = m.epoch;
      if (first) continue;
      // Process 0: it died in its first join.
      LogWarning("{}{} {}", names_(m.worker), m.pid > 0 ? fmt::format(" (process {})", m.pid) : "",
                 what);
    }
  }

 private:
  const WorkerNames names_;
  std::vector<std::uint32_t> told_;  // the last life of each that has ended so
};

}  // namespace passel::shm
