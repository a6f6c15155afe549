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

}  // namespace passel
