// validation_words.h - the best accuracy on the validation images so far, where whoever chooses the
// best checkpoint sees it (job/best_checkpoint.h).
//
// Threads    One writer, any number of readers.

#pragma once

#include <atomic>
#include <cstdint>

namespace passel {

/// The step is 0 while the accuracy changes, and before the first: a reader that sees it twice
/// around (acquire) has both.
struct ValidationWords {
  std::atomic<double> accuracy;
  std::atomic<std::int64_t> step;  ///< global, of the values that were evaluated
};

/// The writer. Of equal ones the first stays; of step 0 none counts. Memory order: release.
inline void KeepIfBest(ValidationWords& words, double accuracy, std::int64_t step) {
  if (step <= 0) return;
  const bool first = words.step.load(std::memory_order_relaxed) == 0;
  if (!first && !(accuracy > words.accuracy.load(std::memory_order_relaxed))) return;
  words.step.store(0, std::memory_order_release);
  words.accuracy.store(accuracy, std::memory_order_release);
  words.step.store(step, std::memory_order_release);
}

}  // namespace passel
