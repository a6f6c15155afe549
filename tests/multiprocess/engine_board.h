// engine_board.h - what the worker processes of the engine tests report, in memory that outlives
// them.

#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

namespace passel::testing {

struct Board {
  static constexpr int kRounds = 2'000'000;
  std::atomic<std::uint64_t> acked[8];          // pushes for which worker k got OK
  std::atomic<std::uint64_t> dropped[8];        // of these, those that were not applied
  std::atomic<std::uint64_t> members[kRounds];  // of each round, as a mask; 0: nobody has said
  std::atomic<std::uint64_t> disagreements;     // two workers named different members
};

inline Board* MapBoard(int fd) {
  void* p = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return p == MAP_FAILED ? nullptr : static_cast<Board*>(p);
}

// Exit codes of engine_worker.
inline constexpr int kExitAborted = 77;
inline constexpr int kExitDeadline = 78;
inline constexpr int kExitOther = 79;
inline constexpr int kExitUsage = 80;

/// Calls of engine_worker: WORKER BOARD_FD STEPS STALL_MS GRADIENT EVICTION PAUSE_US TURN_MS
/// ARENA_FD...
/// GRADIENT: "count" pushes -1 everywhere; "test" pushes TestGradient(worker, round, element).
/// EVICTION: "kill" or "fence".
/// STEPS: rounds in the round modes, own pushes in the others; 0: until Stop().
/// PAUSE_US: between a pull and its push. TURN_MS: it waits in turns of that length.
}  // namespace passel::testing
