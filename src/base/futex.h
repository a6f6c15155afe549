// futex.h - waiting on a 32-bit word that processes share.
//
// libstdc++'s atomic::wait and std::barrier use process-private futexes and are deaf across
// processes; these calls are not.

#pragma once

#include <atomic>
#include <cstdint>

#include "base/deadline.h"

namespace passel {

/// Sleeps while `word == expected`, until a wake, the deadline or a signal; may return early for no
/// reason. The caller re-checks its condition. Memory order: none; load `word` with acquire.
void FutexWait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline);

/// Wakes everyone who sleeps on `word`.
void FutexWakeAll(std::atomic<std::uint32_t>& word);

/// Tells the core that it spins (pause): saves power and gives the sibling thread room.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace passel
