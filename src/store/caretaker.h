// caretaker.h - what is done about the workers of a job by those who look on: it tells who is gone,
// finds out who died unseen, and gives up who never came.
//
// It reads and writes the shared words alone. Connections, whose end tells sooner, are the
// carrier's: MarkGone() is for them.
//
// One thread at a time.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/process_identity.h"
#include "cluster/worker_names.h"
#include "store/shard_memory.h"

namespace passel {

class Caretaker {
 public:
  explicit Caretaker(WorkerNames names) : names_(std::move(names)) {}

  /// The memory is another from now on, in which nobody has been.
  void BeginAnew();

  /// Logs who has died, left or was evicted since the last call, each once. What had happened
  /// before the first is old.
  void TellDepartures(const ShardMemory& memory);

  /// Marks those that are dead and have no connection which would tell it.
  void FindDead(const ShardMemory& memory, const std::function<bool(int worker)>& connected);

  /// Nobody waits for ever for a worker that was never started, or was refused: when none is
  /// running any more, those are given up. Logs, unless `quiet`, who did not come within `limit`,
  /// each once.
  void GiveUpThoseWhoNeverCame(const ShardMemory& memory, std::chrono::nanoseconds limit,
                               bool quiet);

 private:
  const WorkerNames names_;
  std::vector<std::uint32_t> told_;  // the last life of each that has ended, and it was said
  std::set<int> told_missing_;       // workers that never came, and it was said
  struct Joiner {
    std::uint32_t epoch = 0;
    std::int64_t since_ns = 0;  // MonotonicNs()
  };
  std::map<int, Joiner> joiners_;  // without a connection
};

/// The process that was that worker, or was about to be, has ended: so has its life. `another`: a
/// process that lives is about to be that worker.
void MarkGone(const ShardMemory& memory, int worker, const ProcessIdentity& who, bool another);

}  // namespace passel
