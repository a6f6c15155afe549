// raise_to.h - words that only ever grow, whoever writes them, in whatever order they come.

#pragma once

#include <atomic>

namespace passel {

/// word = max(word, value). Memory order: sequentially consistent where it changes the word.
template <typename T>
void RaiseTo(std::atomic<T>& word, T value) {
  T seen = word.load(std::memory_order_relaxed);
  while (seen < value && !word.compare_exchange_weak(seen, value, std::memory_order_seq_cst)) {
  }
}

}  // namespace passel
