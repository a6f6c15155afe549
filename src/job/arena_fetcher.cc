#include "job/arena_fetcher.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"
#include "cluster/patience.h"

namespace passel::job {

ArenaFetcher::ArenaFetcher(const std::string& job_id, int shards, std::uint64_t cluster_hash,
                           const JobToken& token, std::int64_t limit_ns)
    : introduction_{job_id, Role::kSupervisor, 0, cluster_hash},
      shards_(shards),
      token_(token),
      deadline_(Deadline::After(std::chrono::nanoseconds(limit_ns))),
      done_(static_cast<std::size_t>(shards)),
      thread_([this] { Run(); }) {}

ArenaFetcher::~ArenaFetcher() {
  // Relaxed: nothing else is handed over by it; join() orders the end.
  quit_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void ArenaFetcher::Take(std::vector<std::unique_ptr<shm::Arena>>* arenas) {
  const std::lock_guard lock(mutex_);
  for (std::size_t shard = 0; shard < done_.size(); ++shard) {
    if (done_[shard]) (*arenas)[shard] = std::move(done_[shard]);
  }
}

void ArenaFetcher::Run() {
  nvtx::NameThread("fetch arenas");
  Patience patience(deadline_);
  for (int shard = 0; shard < shards_; ++shard) {
    while (!Fetch(shard).ok()) {
      // The ps died, or was slow: its next life answers. Other errors are the chief's to report.
      const bool quit = quit_.load(std::memory_order_relaxed);
      if (quit || !patience.Again(std::chrono::milliseconds(5))) return span_.End();
    }
  }
  span_.End();
  finished_.store(true, std::memory_order_release);  // pairs with the load in Finished()
}

Status ArenaFetcher::Fetch(int shard) {
  const Deadline turn = deadline_.Sooner(std::chrono::milliseconds(500));
  PASSEL_ASSIGN_OR_RETURN(
      shm::RendezvousClient client,
      shm::RendezvousClient::Connect(introduction_, Role::kPs, shard, &token_, turn));
  PASSEL_ASSIGN_OR_RETURN(std::optional<FileDescriptor> fd, client.GetArena(true, turn));
  if (!fd) return Unavailable("no arena yet");
  PASSEL_ASSIGN_OR_RETURN(shm::Arena arena, shm::Arena::Adopt(std::move(*fd)));
  {
    // Before the ps learns of it: should it die right then, its next life starts on this arena.
    const std::lock_guard lock(mutex_);
    done_[static_cast<std::size_t>(shard)] = std::make_unique<shm::Arena>(std::move(arena));
  }
  return client.SayKept(turn);
}

}  // namespace passel::job
