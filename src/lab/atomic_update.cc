// The element-wise atomic update. Built like the loops of src/optim, without contraction: one
// writer alone gets the same bits.

#include <atomic>
#include <cstddef>

#include "base/check.h"
#include "base/denormals.h"
#include "lab/writers.h"
#include "optim/update_formulas.h"

namespace passel::lab {
namespace {

// One element: its value and its slots as they were seen together.
template <typename Rule>
struct Element {
  float word[1 + Rule::kSlots];  // value, slots

  Element Updated(const Rule& rule, float g) const {
    Element after = *this;
    if constexpr (Rule::kSlots == 0) {
      rule(after.word[0], g);
    } else if constexpr (Rule::kSlots == 1) {
      rule(after.word[0], after.word[1], g);
    } else if constexpr (Rule::kSlots == 2) {
      rule(after.word[0], after.word[1], after.word[2], g);
    } else {
      static_assert(Rule::kSlots == 3);
      rule(after.word[0], after.word[1], after.word[2], after.word[3], g);
    }
    return after;
  }
};

template <typename Rule>
void Sweep(const StepScalars& scalars, float* values, float* const* slots, const float* gradient,
           std::size_t n) {
  const Rule rule(scalars);
  for (std::size_t i = 0; i < n; ++i) {
    float* words[1 + Rule::kSlots] = {values + i};
    for (int s = 0; s < Rule::kSlots; ++s) words[1 + s] = slots[s] + i;
    Element<Rule> seen;
    // Relaxed, here and below: an element is a number of its own and publishes nothing else.
    for (int k = 0; k <= Rule::kSlots; ++k) {
      seen.word[k] = std::atomic_ref<float>(*words[k]).load(std::memory_order_relaxed);
    }
    const Element<Rule> first = seen.Updated(rule, gradient[i]);
    for (int k = 0; k <= Rule::kSlots; ++k) {
      float wanted = first.word[k];
      Element<Rule> now = seen;
      while (!std::atomic_ref<float>(*words[k]).compare_exchange_weak(
          now.word[k], wanted, std::memory_order_relaxed, std::memory_order_relaxed)) {
        wanted = now.Updated(rule, gradient[i]).word[k];
      }
    }
  }
}

}  // namespace

void ApplyAtomically(const StepScalars& scalars, float* values, float* const* slots,
                     const float* gradient, std::size_t n) {
  const FlushDenormals flush;
  const bool known = UpdateRules::With(
      scalars.rule, [&]<typename Rule>() { Sweep<Rule>(scalars, values, slots, gradient, n); });
  PASSEL_CHECK(known, "the scalars are not of Prepare()");
}

}  // namespace passel::lab
