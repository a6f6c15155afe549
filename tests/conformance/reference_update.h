// reference_update.h - what a single process would have computed: plain float32 loops, written from
// the formulas of TensorFlow 1.x, that share no code with src/optim and src/store.
//
// Only the scalars of a step come from Prepare(), which tests/unit/optim checks against NumPy.
// Compile with -ffp-contract=off, like the product.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optim/optimizer.h"
#include "optim/update_kernels.h"

namespace passel::testing {

/// One variable under one optimizer.
class ReferenceVariable {
 public:
  ReferenceVariable(const OptimizerConfig& optimizer, std::vector<float> values)
      : optimizer_(optimizer), values_(std::move(values)) {
    for (int s = 0; s < NumSlots(optimizer); ++s) {
      slots_.emplace_back(values_.size(), SlotInitialValue(optimizer, s));
    }
  }

  /// From the next update on.
  void SetRates(const GroupRates& rates) {
    optimizer_.learning_rate = rates.learning_rate;
    if (optimizer_.kind == OptimizerKind::kAdamW) optimizer_.weight_decay = rates.weight_decay;
  }

  /// Update number `t`, 1 for the first, with the mean of the gradients, summed in this order.
  /// Each may be a sum itself: `weight` is how many there are in all; 0: as many as vectors.
  void Step(std::int64_t t, const std::vector<std::vector<float>>& gradients, int weight = 0) {
    if (weight == 0) weight = static_cast<int>(gradients.size());
    const StepScalars c = Prepare(optimizer_, t);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      float g = gradients[0][i];
      for (std::size_t k = 1; k < gradients.size(); ++k) g = g + gradients[k][i];
      if (weight > 1) g = g / static_cast<float>(weight);
      StepElement(c, i, g);
    }
  }

  const std::vector<float>& values() const { return values_; }
  const std::vector<float>& slot(std::size_t k) const { return slots_[k]; }

 private:
  void StepElement(const StepScalars& c, std::size_t i, float g) {
    float& w = values_[i];
    const auto slot = [&](std::size_t s) -> float& { return slots_[s][i]; };
    switch (optimizer_.kind) {
      case OptimizerKind::kSgd:
        w = w - c.rate * g;
        return;
      case OptimizerKind::kMomentum:
        slot(0) = slot(0) * c.momentum + g;
        if (optimizer_.use_nesterov != 0) {
          w = w - (c.rate * g + c.rate_momentum * slot(0));
        } else {
          w = w - c.rate * slot(0);
        }
        return;
      case OptimizerKind::kAdagrad:
        slot(0) = slot(0) + g * g;
        w = w - c.rate * g / std::sqrt(slot(0));
        return;
      case OptimizerKind::kAdam:
        slot(0) = slot(0) + (g - slot(0)) * c.one_minus_beta1;
        slot(1) = slot(1) + (g * g - slot(1)) * c.one_minus_decay;
        w = w - c.rate * slot(0) / (std::sqrt(slot(1)) + c.epsilon);
        return;
      case OptimizerKind::kAdamW:
        slot(0) = slot(0) + (g - slot(0)) * c.one_minus_beta1;
        slot(1) = slot(1) + (g * g - slot(1)) * c.one_minus_decay;
        w = w - c.rate_decay * w;
        w = w - c.rate * slot(0) / (std::sqrt(slot(1)) + c.epsilon);
        return;
      case OptimizerKind::kRmsProp:
        slot(0) = slot(0) + (g * g - slot(0)) * c.one_minus_decay;
        slot(1) = slot(1) * c.momentum + c.rate * g / std::sqrt(slot(0) + c.epsilon);
        w = w - slot(1);
        return;
      case OptimizerKind::kFtrl:
        break;
    }
    PASSEL_CHECK(false, "the reference does not know this optimizer");
  }

  OptimizerConfig optimizer_;
  std::vector<float> values_;
  std::vector<std::vector<float>> slots_;
};

/// A gradient that everyone can compute: of no pattern, of many magnitudes below 2 (so that sums
/// are rounded, and their order shows), never near 0.
inline float TestGradient(int worker, std::uint64_t step, std::uint64_t element) {
  std::uint64_t x = (static_cast<std::uint64_t>(worker) + 1) * 0x9e3779b97f4a7c15u ^
                    (step + 1) * 0xbf58476d1ce4e5b9u ^ (element + 1) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  const float size = (static_cast<float>(x >> 40) + 1.0F) / 16777216.0F + 0.01F;
  return (x % 2 == 0 ? size : -size) / static_cast<float>(1 + x / 2 % 13);
}

inline float TestInitialValue(std::uint64_t element) { return TestGradient(-1, 77, element); }

}  // namespace passel::testing
