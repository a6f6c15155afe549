// writers.h - what one writer process of a cell does again and again.

#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>

#include "base/deadline.h"
#include "base/status.h"
#include "lab/cell.h"
#include "optim/update_formulas.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::lab {

/// Blocks that a writer found held by another.
struct Collisions {
  std::uint64_t busy = 0;        ///< and came back to
  std::uint64_t overlapped = 0;  ///< and entered all the same, or left out
};

/// One thread.
class Writer {
 public:
  virtual ~Writer() = default;
  /// One operation of the cell, with the gradient as it is.
  virtual Status Update(Deadline deadline) = 0;
  /// float32[elements]
  virtual float* gradient() const = 0;
  virtual Collisions collisions() const { return {}; }
  virtual Status Leave() { return {}; }
};

/// The lock of Foil::kMutex, in memory that the processes share.
class SharedMutex {
 public:
  /// Errors: kInternal.
  Status Init();
  /// Errors: kDeadlineExceeded.
  Status Lock(Deadline deadline);
  void Unlock();

 private:
  pthread_mutex_t mutex_;
};

/// The writer `index` on `memory`, this process's mapping of the arena, which outlives it; `mutex`
/// is for kMutex. Writer 0 opens the store.
Result<std::unique_ptr<Writer>> OpenWriter(const Cell& cell, const StorePlan& plan,
                                           const ShardMemory& memory, int index,
                                           SharedMutex* mutex);

/// One update of the whole span, each float by a relaxed compare-and-swap of its own. No value is
/// lost, whoever else does the same; the slots that a value was computed from may be older.
void ApplyAtomically(const StepScalars& scalars, float* values, float* const* slots,
                     const float* gradient, std::size_t n);

}  // namespace passel::lab
