// gradient_sum.h - where a worker adds up the gradients of several batches before it pushes.
//
//   batch 1 ─► memory lent by the store ─────────────┐
//   batch 2 ─► addend() ─► added ────────────────────┤
//   batch n ─► addend() ─► added, divided by n ──────┴─► one push
//
// The order of the additions is that of the batches, so the result is the same bit for bit each
// time.
//
// Threads    One thread, the worker's.

#pragma once

#include <vector>

#include "store/parameter_store.h"

namespace passel {

class GradientSum {
 public:
  /// For gradients of the variables of `table`, which outlives it. Reserves as much memory.
  explicit GradientSum(const VariableTable& table);
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  /// Memory of this worker for every gradient but the first.
  const GradientBuffer& addend() const { return addend_; }
  /// sum = (sum + addend()) / divisor. REQUIRES: divisor > 0.
  void AddTo(const GradientBuffer& sum, float divisor) const;

 private:
  const VariableTable& table_;
  std::vector<float> memory_;
  std::vector<float*> values_;  // [variables], in memory_, each aligned like the store's
  GradientBuffer addend_;
};

}  // namespace passel
