#include "store/shard_reader.h"

#include <fmt/core.h>
#include <sched.h>

#include <chrono>
#include <thread>

#include "base/atomic_word.h"
#include "base/futex.h"
#include "base/process_identity.h"
#include "optim/update_kernels.h"
#include "store/block_claims.h"
#include "store/membership.h"
#include "store/mode_change.h"

namespace passel {
namespace {

// Looks at a block before a copy of it counts as mixed, where writers may overlap. A block takes
// them about a microsecond; who holds it for longer is suspended, perhaps for milliseconds.
constexpr int kLooks = 8;
// Of these, and of those where it is waited for, so many spin; then it lends its core to others,
// who may be the holder; then it sleeps.
constexpr int kSpins = 4;
constexpr int kYields = 64;
constexpr int kPausesPerSpin = 32;  // about a microsecond: who looks takes lines from the holder
constexpr std::chrono::microseconds kSleep{50};

void Pause(int look) {
  if (look <= kSpins) {
    for (int i = 0; i < kPausesPerSpin; ++i) SpinPause();
  } else if (look <= kYields) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(kSleep);
  }
}

// Whether nobody enters a block that another holds. A shard learns of a change of the mode before
// anything is pushed to it in the new one.
bool ClaimsBind(const ShardMemory& memory) {
  const Mode mode = CurrentMode(memory).setting.mode;
  return IsRoundMode(mode) || Has<&ModeTraits::binding>(mode);
}

}  // namespace

bool ShardReader::IsOverlapped(std::size_t block) const {
  for (int k = 0; k < memory_.num_workers; ++k) {
    // Acquire, paired with the release at its end: `overlaps` is raised then.
    if (memory_.tasks[k].overlapping.load(std::memory_order_acquire) != block + 1) continue;
    // One that died there writes no more.
    if (StateOf(memory_, k).phase == Phase::kRunning) return true;
  }
  return false;
}

bool ShardReader::CopyBlock(std::size_t block, std::span<float* const> out) const {
  const BlockState& state = memory_.blocks[block];
  const std::size_t begin = memory_.BlockBegin(block);
  const std::size_t size = memory_.BlockSize(block);
  // Acquire, paired with the release of each: what has ended by now the copy has whole.
  const std::uint64_t updates = state.updates.load(std::memory_order_acquire);
  const std::uint64_t overlaps = state.overlaps.load(std::memory_order_acquire);
  for (std::size_t k = 0; k < out.size(); ++k) {
    CopyValues(out[k], (k == 0 ? memory_.values : memory_.slots[k - 1]) + begin, size);
  }
  EndOfCopy();
  // If the copy has anything of an update that had not ended then, its mark is seen from here on:
  // the claim, or that of who has none; and where that is gone, the number that was raised before.
  return state.claim.load(std::memory_order_acquire) == 0 && !IsOverlapped(block) &&
         state.updates.load(std::memory_order_acquire) == updates &&
         state.overlaps.load(std::memory_order_acquire) == overlaps;
}

bool ShardReader::HolderIsGone(std::size_t block, bool ask_the_kernel) const {
  const std::uint64_t word = memory_.blocks[block].claim.load(std::memory_order_acquire);
  if (word == 0) return false;
  const Claim holder = Claim::Unpack(word);
  if (!HolderLives(memory_, holder)) return true;
  return ask_the_kernel &&
         ProbeLiveness(LoadIdentity(memory_.tasks[holder.worker], holder.epoch)) == Liveness::kDead;
}

Result<bool> ShardReader::ReadBlock(std::size_t block, std::span<float* const> out,
                                    Deadline deadline) const {
  const auto holder = [&] { return memory_.blocks[block].claim.load(std::memory_order_relaxed); };
  for (int look = 1;; ++look) {
    const bool bind = ClaimsBind(memory_);
    const bool gone =
        bind && look > 1 && HolderIsGone(block, /*ask_the_kernel=*/look % kYields == 0);
    const bool last = gone || (bind ? deadline.Expired() : look >= kLooks);
    if ((last || holder() == 0) && CopyBlock(block, out)) return true;
    if (last && bind && !gone) {
      const std::uint64_t word = holder();
      return DeadlineExceeded(fmt::format(
          "block {} of the variables was never left alone for as long as a copy takes{}: give it "
          "more time, or copy it while all workers meet",
          block,
          word == 0 ? "" : fmt::format(" (worker {} is in it)", Claim::Unpack(word).worker)));
    }
    if (last) return false;
    Pause(look);
  }
}

}  // namespace passel
