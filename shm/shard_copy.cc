#include "shm/shard_copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/deadline.h"
#include "optim/update_kernels.h"
#include "store/mode_change.h"

namespace passel::shm {
namespace {

// A round of a small model is applied in microseconds, and computed in many more.
constexpr std::chrono::milliseconds kSettleLimit{50};
constexpr std::chrono::microseconds kSettlePause{50};

// The mode in force. A shard learns of a change before anything is pushed to it in the new mode.
bool HasRounds(const Arena& arena) { return IsRoundMode(CurrentMode(arena.memory()).setting.mode); }

// The round whose values the shard holds: every block has seen it, and nobody is at work on one.
// Claims first: whoever has let go of a block has written its new round before.
std::optional<std::uint64_t> SettledRound(const Arena& arena) {
  const ShardMemory& memory = arena.memory();
  if (!HasRounds(arena)) return std::nullopt;
  const bool lead = arena.shard() == 0;
  // Of the lead only when it is finished, too: then the global step says it.
  std::uint64_t round = lead ? memory.state->completed_round.load(std::memory_order_acquire)
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

// Orders the copy before the second look at the blocks: without it the processor could look first.
// ThreadSanitizer knows no fences; in its builds every access to the values is atomic.
void EndOfCopy() {
#if !defined(PASSEL_ATOMIC_VALUES)
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace

Result<ShardSnapshot> CopyShard(const Arena& arena, const MemoryBudget& budget) {
  const ShardMemory& memory = arena.memory();
  const std::size_t bytes = std::max<std::size_t>(memory.floats, 1) * sizeof(float);
  Result<MemoryFile> file = CreateMemoryFile("passel.snapshot", bytes, HugePages::kOff, budget,
                                             MemoryFileUse::kOneWriter);
  if (!file.ok()) return file.status().WithContext("cannot copy the values of the running job");
  void* base = ::mmap(nullptr, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      file->fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map memory for a copy of the values");
  ShardSnapshot copy;
  const auto read_step = [&] { return memory.state->global_step.load(std::memory_order_acquire); };
  const Deadline limit = Deadline::After(kSettleLimit);
  for (bool last = false; !last;) {
    copy.rounds = HasRounds(arena);
    last = !copy.rounds || limit.Expired();
    const std::optional<std::uint64_t> settled = SettledRound(arena);
    if (!settled && !last) {
      std::this_thread::sleep_for(kSettlePause);
      continue;
    }
    copy.global_step = read_step();
    CopyValues(static_cast<float*>(base), memory.values, memory.floats);
    EndOfCopy();
    copy.last_global_step = read_step();
    if (!settled || SettledRound(arena) != settled) continue;
    copy.exact_round = settled;
    break;
  }
  ::munmap(base, file->bytes);
  PASSEL_RETURN_IF_ERROR(SealAgainstWriting(file->fd.get()));
  copy.values = std::move(file->fd);
  return copy;
}

}  // namespace passel::shm
