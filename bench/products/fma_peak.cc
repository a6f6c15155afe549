#include "bench/products/fma_peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/clock.h"

namespace passel::bench {
namespace {

// Enough chains to hide the latency of 4 or 5 cycles of two units; with operands within 16
// registers.
constexpr int kChains = 12;
constexpr int kTurns = 10000;

// In a macro, since a vector of 64 bytes is one only inside a function of that target. Each chain
// needs its own last result, so that no compiler may shorten it.
#define PASSEL_FMA_CHAINS(Vector, set, fma, lane)                                    \
  Vector chains[kChains];                                                            \
  for (int i = 0; i < kChains; ++i) chains[i] = set(static_cast<float>(i));          \
  const Vector factor = set(0.9999F), term = set(1e-6F);                             \
  for (int turn = 0; turn < kTurns; ++turn) {                                        \
    _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) {                     \
      chains[i] = fma(chains[i], factor, term);                                      \
    }                                                                                \
  }                                                                                  \
  float sum = 0;                                                                     \
  _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) sum += lane(chains[i]); \
  return sum;

#if defined(__x86_64__)
constexpr int kBaselineLanes = 4;
inline __m128 Separate(__m128 a, __m128 b, __m128 c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
__attribute__((noinline)) float Baseline() {
  PASSEL_FMA_CHAINS(__m128, _mm_set1_ps, Separate, _mm_cvtss_f32)
}
__attribute__((noinline, target("avx2,fma"))) float Avx2() {
  PASSEL_FMA_CHAINS(__m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)
}
__attribute__((noinline, target("avx512f"))) float Avx512() {
  PASSEL_FMA_CHAINS(__m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)
}
#else
constexpr int kBaselineLanes = 4;
__attribute__((noinline)) float Baseline() {
  float chains[kBaselineLanes * kChains];
  for (float& chain : chains) chain = 1;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (float& chain : chains) chain = chain * 0.9999F + 1e-6F;
  }
  float sum = 0;
  for (const float chain : chains) sum += chain;
  return sum;
}
#endif

double Rate(float (*run)(), int lanes) {
  static volatile float sink;
  const std::int64_t begin = MonotonicNs();
  sink = run();
  const auto ns = static_cast<double>(MonotonicNs() - begin);
  (void)sink;
  return 2.0 * kChains * kTurns * lanes / ns;
}

}  // namespace

VectorSet BestVectorSet() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return VectorSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return VectorSet::kAvx2;
#endif
  return VectorSet::kBaseline;
}

const char* VectorSetName(VectorSet set) {
  return set == VectorSet::kAvx512 ? "avx512" : set == VectorSet::kAvx2 ? "avx2" : "baseline";
}

double MeasurePeak(VectorSet set) {
#if defined(__x86_64__)
  if (set == VectorSet::kAvx512) return Rate(Avx512, 16);
  if (set == VectorSet::kAvx2) return Rate(Avx2, 8);
#endif
  (void)set;
  return Rate(Baseline, kBaselineLanes);
}

}  // namespace passel::bench
