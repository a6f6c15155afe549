#include "store/shard_snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/atomic_word.h"
#include "base/deadline.h"
#include "optim/update_kernels.h"
#include "store/mode_change.h"
#include "store/rates.h"
#include "store/shared_batches.h"

namespace passel {
namespace {

// A round of a small model is applied in microseconds, and computed in many more.
constexpr std::chrono::milliseconds kSettleLimit{50};
constexpr std::chrono::microseconds kSettlePause{50};

// The mode in force. A shard learns of a change before anything is pushed to it in the new mode.
bool HasRounds(const ShardMemory& memory) { return IsRoundMode(CurrentMode(memory).setting.mode); }

// The round whose values the shard holds: every block has seen it, and nobody is at work on one.
// Claims first: whoever has let go of a block has written its new round before.
std::optional<std::uint64_t> SettledRound(const ShardMemory& memory, bool lead) {
  if (!HasRounds(memory)) return std::nullopt;
  // The lead's round must be finished, too: then the global step says it.
  const std::uint64_t round = lead ? memory.state->completed_round.load(std::memory_order_acquire)
                                   : memory.state->version.load(std::memory_order_acquire);
  for (std::size_t b = 0; b < memory.num_blocks; ++b) {
    // Acquire, paired with the releases of a block's end: what is read afterwards is not older.
    if (memory.blocks[b].claim.load(std::memory_order_acquire) != 0 ||
        memory.blocks[b].round.load(std::memory_order_acquire) != round) {
      return std::nullopt;
    }
  }
  return round;
}

JobProgress::Shard ProgressOf(const ShardMemory& memory) {
  return {memory.state->version.load(std::memory_order_acquire),
          memory.state->optimizer_step.load(std::memory_order_relaxed)};
}

}  // namespace

ShardSnapshotInfo TakeShardSnapshot(const ShardMemory& memory, bool lead,
                                    std::span<float* const> out) {
  ShardSnapshotInfo snapshot;
  const auto read_step = [&] { return memory.state->global_step.load(std::memory_order_acquire); };
  const Deadline limit = Deadline::After(kSettleLimit);
  for (bool last = false; !last;) {
    snapshot.rounds = HasRounds(memory);
    last = !snapshot.rounds || limit.Expired();
    const std::optional<std::uint64_t> settled = SettledRound(memory, lead);
    if (!settled && !last) {
      std::this_thread::sleep_for(kSettlePause);
      continue;
    }
    snapshot.global_step = read_step();
    snapshot.progress = ProgressOf(memory);
    for (std::size_t k = 0; k < out.size(); ++k) {
      CopyValues(out[k], k == 0 ? memory.values : memory.slots[k - 1], memory.floats);
    }
    EndOfCopy();
    snapshot.last_global_step = read_step();
    if (!settled || SettledRound(memory, lead) != settled) continue;
    snapshot.exact_round = settled;
    break;
  }
  return snapshot;
}

Result<ShardCopy> CopyShard(const ShardMemory& memory, bool lead, const MemoryBudget& budget) {
  const std::size_t bytes = std::max<std::size_t>(memory.floats, 1) * sizeof(float);
  Result<MemoryFile> file = CreateMemoryFile("passel.snapshot", bytes, HugePages::kOff, budget,
                                             MemoryFileUse::kOneWriter);
  if (!file.ok()) return file.status().WithContext("cannot copy the values of the running job");
  void* base = ::mmap(nullptr, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      file->fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map memory for a copy of the values");
  float* const values = static_cast<float*>(base);
  ShardCopy copy{TakeShardSnapshot(memory, lead, {&values, 1}), {}};
  ::munmap(base, file->bytes);
  PASSEL_RETURN_IF_ERROR(SealAgainstWriting(file->fd.get()));
  copy.values = std::move(file->fd);
  return copy;
}

JobProgress ProgressOf(std::span<const ShardMemory> shards) {
  JobProgress progress;
  const ShardMemory& lead = shards[0];
  progress.global_step = lead.state->global_step.load(std::memory_order_acquire);
  progress.batches = BatchesOf(lead);
  progress.rates = RatesNow(lead);
  for (int k = 0; k < lead.num_workers; ++k) {
    const TaskSlot& task = lead.tasks[k];
    progress.workers.push_back({Arrival::Unpack(task.clock.load(std::memory_order_relaxed)).at,
                                task.counters.cursor_epochs.load(std::memory_order_relaxed),
                                task.counters.cursor_index.load(std::memory_order_relaxed),
                                task.counters.local_steps.load(std::memory_order_relaxed)});
  }
  for (const ShardMemory& shard : shards) progress.shards.push_back(ProgressOf(shard));
  return progress;
}

}  // namespace passel
