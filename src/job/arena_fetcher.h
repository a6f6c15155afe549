// arena_fetcher.h - gets every ps's arena while the supervisor goes on looking after its tasks.
//
// A ps hands its arena to workers only after the supervisor has it, so a ps that is killed never
// takes an update with it. A ps that dies or is slow is asked again, until `limit_ns` has passed.
//
// Threads   One of its own, which ends with the object. Take() and Finished() may be called at any
//           time, from one thread.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/nvtx.h"
#include "base/status.h"
#include "cluster/job_token.h"
#include "shm/arena.h"
#include "shm/rendezvous_client.h"

namespace passel::job {

class ArenaFetcher {
 public:
  /// Begins at once. `limit_ns` is counted from now, in nanoseconds.
  ArenaFetcher(const std::string& job_id, int shards, std::uint64_t cluster_hash,
               const JobToken& token, std::int64_t limit_ns);
  /// Gives up what has not come; takes half a second at most.
  ~ArenaFetcher();
  ArenaFetcher(const ArenaFetcher&) = delete;
  ArenaFetcher& operator=(const ArenaFetcher&) = delete;

  /// Moves what has come since the last call into `arenas`, [shards].
  void Take(std::vector<std::unique_ptr<shm::Arena>>* arenas);
  /// True once every ps knows that its arena is kept.
  bool Finished() const { return finished_.load(std::memory_order_acquire); }

 private:
  void Run();
  Status Fetch(int shard);

  const Introduction introduction_;
  const int shards_;
  const JobToken token_;
  const Deadline deadline_;
  std::mutex mutex_;                               // guards done_
  std::vector<std::unique_ptr<shm::Arena>> done_;  // [shards]; null: none since the last Take()
  std::atomic<bool> finished_{false};
  std::atomic<bool> quit_{false};
  nvtx::Span span_{nvtx::Event::kFetchArenas, shards_};  // ends with the thread's work
  std::thread thread_;
};

}  // namespace passel::job
