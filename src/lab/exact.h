// exact.h - values and gradients whose sums are known, and the private loop that is the limit.
//
// Counting   The value, or the sum of squares, starts at a whole number, and every update of an
//            element adds exactly 1 to it: floats are exact up to 2^24. For Adam the moments start
//            where this gradient leaves them, and the step number is beyond the bias correction.
// Rounds     Their step number is the round's; what an element must be then is found by applying
//            the rounds to a few elements.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "lab/cell.h"
#include "optim/update_formulas.h"
#include "store/shard_memory.h"
#include "store/store_plan.h"

namespace passel::lab {

/// Private memory of one writer: values, slots and a gradient, and their update. Pages as the
/// cell's. One thread.
class PrivateLoop {
 public:
  /// Errors: kResourceExhausted.
  static Result<PrivateLoop> Make(const Cell& cell, const StorePlan& plan);
  PrivateLoop(PrivateLoop&& other) noexcept;
  PrivateLoop& operator=(PrivateLoop&&) = delete;
  ~PrivateLoop();

  /// The limit's operation: (kPushPull: the copy and) the fused loop over everything.
  void Update();

  float* values() const { return arrays_[0]; }         ///< float32[elements]
  float* const* slots() const { return arrays_ + 1; }  ///< NumSlots() of them
  float* gradient() const { return gradient_; }        ///< float32[elements]

 private:
  PrivateLoop() = default;
  std::size_t elements_ = 0;
  int num_slots_ = 0;
  StepScalars scalars_ = {};
  float* arrays_[1 + kMaxSlots] = {};  // values, slots
  float* gradient_ = nullptr;
  float* copy_ = nullptr;  // null unless the operation copies
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

// --- Before anything is timed: values and gradients of both signs, each writer others ------------

/// The values of `memory` and the first values of its slots.
void FillForCheck(const StorePlan& plan, std::size_t elements, float* values, float* const* slots);
void FillGradientForCheck(int writer, std::size_t elements, float* gradient);
/// Rounds that all writers complete, or turns in which each writer updates once, one after another.
inline constexpr int kCheckRounds = 2;
/// Whether `memory` holds, to the last bit, what the optimizer's loop makes of FillForCheck() by
/// the writers' updates. Overwrites `scratch`. Errors: kInternal.
Status CheckAgainstLoop(const Cell& cell, const StorePlan& plan, const ShardMemory& memory,
                        const PrivateLoop& scratch);

// --- While it is timed -----------------------------------------------------------------------

void FillForCounting(const StorePlan& plan, std::size_t elements, float* values,
                     float* const* slots);
void FillGradientForCounting(std::size_t elements, float* gradient);
/// A step number with which Adam adds 1 as well; modes that apply at once count from there.
inline constexpr std::int64_t kCountingStep = std::int64_t{1} << 20;

/// Updates of single elements that are missing in `memory` after `pushes` pushes, of
/// pushes x elements. For cells without rounds. Errors: kInternal if a sum is none that any loss
/// explains, or there is a loss where there must be none.
Result<std::int64_t> CountLost(const Cell& cell, const StorePlan& plan, const ShardMemory& memory,
                               std::int64_t pushes);

/// Whether every element is what the rounds first, first + 1, ..., last make of FillForCounting().
/// Errors: kInternal.
Status CheckRounds(const Cell& cell, const StorePlan& plan, const ShardMemory& memory,
                   std::int64_t first, std::int64_t last);

}  // namespace passel::lab
