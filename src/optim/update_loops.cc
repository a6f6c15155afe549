// update_loops.cc - the loops of one UpdateTable, compiled once per instruction set (PASSEL_ISA).
//
// Only the table has external linkage. Nothing with inline functions may be included: see
// "Inlining" in optim/update_formulas.h. tests/unit/optim/check_isa_symbols.py holds this.

#include <cstddef>
#include <cstdint>

#include "optim/update_formulas.h"
#include "optim/update_table.h"

#ifndef PASSEL_ISA
#error "compile this file through passel_isa_sources()"
#endif

namespace passel {
namespace {

/// While it lives, subnormal results and operands count as 0 in this thread. A moment that decays
/// towards 0 (an input that is seldom lit, a dead unit) ends as a subnormal number, and a sweep
/// over such numbers takes 20 to 30 times longer without this (Adam, 79,510 elements: 1,588 us
/// against 72). TensorFlow's kernels flush too. Without effect on other processors than x86-64.
class FlushSubnormals {
 public:
#if defined(__x86_64__)
  FlushSubnormals() : saved_(__builtin_ia32_stmxcsr()) {
    if ((saved_ & kFlush) != kFlush) __builtin_ia32_ldmxcsr(saved_ | kFlush);
  }
  ~FlushSubnormals() {
    if ((saved_ & kFlush) != kFlush) __builtin_ia32_ldmxcsr(saved_);
  }
#else
  FlushSubnormals() {}
  ~FlushSubnormals() {}
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

#if defined(__x86_64__)
 private:
  static constexpr unsigned kFlush = 0x8040;  // FTZ (bit 15) and DAZ (bit 6)
  unsigned saved_;
#endif
};

struct PlainAccess {
  static inline __attribute__((always_inline)) float Load(float* p) { return *p; }
  static inline __attribute__((always_inline)) void Store(float* p, float x) { *p = x; }
};

// What std::atomic_ref<float> does; <atomic> is full of inline functions. Relaxed: an element is a
// number of its own and publishes nothing else. Whoever must see a whole update is told by the
// store's version, which is released after the sweep.
struct RelaxedAccess {
  static inline __attribute__((always_inline)) float Load(float* p) {
    float x;
    __atomic_load(p, &x, __ATOMIC_RELAXED);
    return x;
  }
  static inline __attribute__((always_inline)) void Store(float* p, float x) {
    __atomic_store(p, &x, __ATOMIC_RELAXED);
  }
};

template <typename Rule, typename Access>
inline __attribute__((always_inline)) void UpdateOne(const Rule& rule, float* __restrict w,
                                                     float* __restrict s0, float* __restrict s1,
                                                     float* __restrict s2, float g, std::size_t i) {
  float value = Access::Load(w + i);
  if constexpr (Rule::kSlots == 0) {
    rule(value, g);
  } else if constexpr (Rule::kSlots == 1) {
    float slot0 = Access::Load(s0 + i);
    rule(value, slot0, g);
    Access::Store(s0 + i, slot0);
  } else if constexpr (Rule::kSlots == 2) {
    float slot0 = Access::Load(s0 + i);
    float slot1 = Access::Load(s1 + i);
    rule(value, slot0, slot1, g);
    Access::Store(s0 + i, slot0);
    Access::Store(s1 + i, slot1);
  } else {
    static_assert(Rule::kSlots == 3);
    float slot0 = Access::Load(s0 + i);
    float slot1 = Access::Load(s1 + i);
    float slot2 = Access::Load(s2 + i);
    rule(value, slot0, slot1, slot2, g);
    Access::Store(s0 + i, slot0);
    Access::Store(s1 + i, slot1);
    Access::Store(s2 + i, slot2);
  }
  Access::Store(w + i, value);
}

// One register of the instruction set.
#if defined(__AVX512F__)
#define PASSEL_VECTOR_BYTES 64
#elif defined(__AVX__)
#define PASSEL_VECTOR_BYTES 32
#else
#define PASSEL_VECTOR_BYTES 16
#endif
typedef float Vector __attribute__((vector_size(PASSEL_VECTOR_BYTES)));
constexpr std::size_t kLanes = sizeof(Vector) / sizeof(float);

// Lane block `index` behind p, which may have any alignment of a float.
inline __attribute__((always_inline)) Vector LoadVector(const float* p, std::size_t index) {
  Vector x;
  __builtin_memcpy(&x, p + index * kLanes, sizeof(x));
  return x;
}
inline __attribute__((always_inline)) void StoreVector(float* p, std::size_t index, Vector x) {
  __builtin_memcpy(p + index * kLanes, &x, sizeof(x));
}

// 1 / x where x is a power of two: multiplying by it rounds as dividing by x does. Else 0.
inline float ExactInverse(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  const std::uint32_t exponent = (bits >> 23) & 0xff;
  const bool power_of_two = (bits & 0x007fffff) == 0 && exponent > 1 && exponent < 253;
  return power_of_two ? 1.0F / x : 0.0F;
}

// out[0, end - begin) from gradients[k][begin, end). The partial sums stay in registers. Every
// chunk is read in full before it is written, so `out` may be one of the gradients.
template <bool kMultiply>
__attribute__((noinline)) void SumInOrder(float* out, const float* const* gradients, int count,
                                          float factor, std::size_t begin,
                                          std::size_t end) noexcept {
  std::size_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    const float* first = gradients[0] + i;
    Vector sum0 = LoadVector(first, 0);
    Vector sum1 = LoadVector(first, 1);
    Vector sum2 = LoadVector(first, 2);
    Vector sum3 = LoadVector(first, 3);
    for (int k = 1; k < count; ++k) {
      const float* term = gradients[k] + i;
      sum0 += LoadVector(term, 0);
      sum1 += LoadVector(term, 1);
      sum2 += LoadVector(term, 2);
      sum3 += LoadVector(term, 3);
    }
    float* mean = out + (i - begin);
    StoreVector(mean, 0, kMultiply ? sum0 * factor : sum0 / factor);
    StoreVector(mean, 1, kMultiply ? sum1 * factor : sum1 / factor);
    StoreVector(mean, 2, kMultiply ? sum2 * factor : sum2 / factor);
    StoreVector(mean, 3, kMultiply ? sum3 * factor : sum3 / factor);
  }
  for (; i < end; ++i) {
    float sum = gradients[0][i];
    for (int k = 1; k < count; ++k) sum += gradients[k][i];
    out[i - begin] = kMultiply ? sum * factor : sum / factor;
  }
}

// How a mean of gradients is made: both ways round alike.
struct Mean {
  const float* const* gradients;
  int count;
  float divisor, inverse;

  Mean(const float* const* all, int number, float by)
      : gradients(all), count(number), divisor(by), inverse(ExactInverse(by)) {}
  void Write(float* out, std::size_t begin, std::size_t end) const {
    if (inverse != 0.0F) {
      SumInOrder<true>(out, gradients, count, inverse, begin, end);
    } else {
      SumInOrder<false>(out, gradients, count, divisor, begin, end);
    }
  }
};

void Sum(float* out, const float* const* gradients, int count, float divisor,
         std::size_t n) noexcept {
  const FlushSubnormals flush;
  Mean(gradients, count, divisor).Write(out, 0, n);
}

constexpr std::size_t kLineFloats = 16;  // of a cache line
constexpr std::size_t kChunk = 4 * kLineFloats;
constexpr std::size_t kAhead = 128;  // floats

// Fetches what will be written as its owner (prefetchw): a line that another core has changed comes
// once, not first for reading and again for writing. This helps with memory of this core alone too,
// since the processor's own prefetching begins anew at each 4 KiB page.
template <typename Rule>
inline __attribute__((always_inline)) void PrefetchChunk(const float* w, const float* s0,
                                                         const float* s1, const float* s2) {
  for (std::size_t k = 0; k < kChunk; k += kLineFloats) {
    __builtin_prefetch(w + k, /*rw=*/1);
    if constexpr (Rule::kSlots > 0) __builtin_prefetch(s0 + k, 1);
    if constexpr (Rule::kSlots > 1) __builtin_prefetch(s1 + k, 1);
    if constexpr (Rule::kSlots > 2) __builtin_prefetch(s2 + k, 1);
  }
}

inline __attribute__((always_inline)) void PrefetchGradient(const float* g) {
  for (std::size_t k = 0; k < kChunk; k += kLineFloats) __builtin_prefetch(g + k, 0);
}

// Not inlined, so that no arithmetic moves out of the caller's FlushSubnormals, and so that both
// compilers believe __restrict. Slots that the rule does not have are null. Prefetches nothing
// beyond the span: what lies there another worker may be writing.
template <typename Rule, typename Access>
__attribute__((noinline)) void SweepArrays(const StepScalars& scalars, float* __restrict w,
                                           float* __restrict s0, float* __restrict s1,
                                           float* __restrict s2, const float* __restrict g,
                                           std::size_t n) noexcept {
  const Rule rule(scalars);
  std::size_t i = 0;
  for (; i + kAhead + kChunk <= n; i += kChunk) {
    const std::size_t next = i + kAhead;
    PrefetchChunk<Rule>(w + next, s0 + next, s1 + next, s2 + next);
    PrefetchGradient(g + next);
    for (std::size_t k = i; k < i + kChunk; ++k) {
      UpdateOne<Rule, Access>(rule, w, s0, s1, s2, g[k], k);
    }
  }
  for (; i < n; ++i) UpdateOne<Rule, Access>(rule, w, s0, s1, s2, g[i], i);
}

// The mean is made a chunk at a time, between updates whose roots and divisions hide that. What
// will be written next is fetched as its owner's here and not when it is saved: a line that others
// have read would come for reading then, and once more for each store.
template <typename Rule, typename Access>
__attribute__((noinline)) void SweepMean(const StepScalars& scalars, float* __restrict w,
                                         float* __restrict s0, float* __restrict s1,
                                         float* __restrict s2, const Mean& mean, std::size_t n,
                                         std::size_t next) noexcept {
  const Rule rule(scalars);
  alignas(kChunk) float g[kChunk];
  for (std::size_t i = 0; i < n || i < next; i += kChunk) {
    if (i + kChunk <= next) {
      const std::size_t at = n + i;
      PrefetchChunk<Rule>(w + at, s0 + at, s1 + at, s2 + at);
      for (int k = 0; k < mean.count; ++k) PrefetchGradient(mean.gradients[k] + at);
    }
    if (i + kChunk <= n) {
      mean.Write(g, i, i + kChunk);
      for (std::size_t k = 0; k < kChunk; ++k) {
        UpdateOne<Rule, Access>(rule, w, s0, s1, s2, g[k], i + k);
      }
    } else if (i < n) {
      mean.Write(g, i, n);
      for (std::size_t k = i; k < n; ++k) {
        UpdateOne<Rule, Access>(rule, w, s0, s1, s2, g[k - i], k);
      }
    }
  }
}

template <typename Rule>
inline float* Slot(float* const* slots, int k) {
  return k < Rule::kSlots ? slots[k] : nullptr;
}

template <typename Access>
void ApplyRule(const StepScalars& scalars, float* values, float* const* slots,
               const float* gradient, std::size_t n) noexcept {
  const FlushSubnormals flush;
  UpdateRules::With(scalars.rule, [&]<typename Rule>() {
    SweepArrays<Rule, Access>(scalars, values, Slot<Rule>(slots, 0), Slot<Rule>(slots, 1),
                              Slot<Rule>(slots, 2), gradient, n);
  });
}

template <typename Access>
void ApplyMean(const StepScalars& scalars, float* values, float* const* slots,
               const float* const* gradients, int count, float divisor, std::size_t n,
               std::size_t next) noexcept {
  const FlushSubnormals flush;
  const Mean mean(gradients, count, divisor);
  UpdateRules::With(scalars.rule, [&]<typename Rule>() {
    SweepMean<Rule, Access>(scalars, values, Slot<Rule>(slots, 0), Slot<Rule>(slots, 1),
                            Slot<Rule>(slots, 2), mean, n, next);
  });
}

using FloatBits __attribute__((may_alias)) = std::uint32_t;

constexpr std::size_t kFiniteBlock = 4096;  // floats looked at before the next chance to stop

bool AllFinite(const float* values, std::size_t n) noexcept {
  const auto* bits = reinterpret_cast<const FloatBits*>(values);
  for (std::size_t begin = 0; begin < n; begin += kFiniteBlock) {
    const std::size_t end = n - begin < kFiniteBlock ? n : begin + kFiniteBlock;
    // Only an exponent of all ones, infinity or NaN, carries into the sign bit.
    std::uint32_t carried = 0;
    for (std::size_t i = begin; i < end; ++i) carried |= (bits[i] & 0x7f800000U) + 0x00800000U;
    if ((carried >> 31) != 0) return false;
  }
  return true;
}

}  // namespace

#define PASSEL_JOIN_INNER_(a, b) a##b
#define PASSEL_JOIN_(a, b) PASSEL_JOIN_INNER_(a, b)
const UpdateTable PASSEL_JOIN_(update_table_, PASSEL_ISA) = {ApplyRule<PlainAccess>,
                                                             ApplyRule<RelaxedAccess>,
                                                             ApplyMean<PlainAccess>,
                                                             ApplyMean<RelaxedAccess>,
                                                             Sum,
                                                             AllFinite};

}  // namespace passel
