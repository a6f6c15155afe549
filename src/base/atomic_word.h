// atomic_word.h - changes of a word that several write at once.

#pragma once

#include <atomic>

namespace passel {

/// word = max(word, value): it only ever grows, in whatever order the values come. Memory order:
/// sequentially consistent where it changes the word.
template <typename T>
void RaiseTo(std::atomic<T>& word, T value) {
  T seen = word.load(std::memory_order_relaxed);
  while (seen < value && !word.compare_exchange_weak(seen, value, std::memory_order_seq_cst)) {
  }
}

/// word = next(word). Memory order: sequentially consistent.
template <typename T, typename Next>
void Replace(std::atomic<T>& word, Next&& next) {
  T seen = word.load(std::memory_order_seq_cst);
  while (!word.compare_exchange_weak(seen, next(seen), std::memory_order_seq_cst)) {
  }
}

/// Stores before it become visible before those behind it, to who looks after our death too.
inline void KeepStoresInOrder() {
#if defined(__x86_64__)
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the processor does
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

/// Behind a copy of values that others may be changing: what is loaded next, to see whether they
/// were, is not loaded before them. ThreadSanitizer knows no fences; in its builds every access to
/// the values is atomic.
inline void EndOfCopy() {
#if !defined(PASSEL_ATOMIC_VALUES)
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace passel
