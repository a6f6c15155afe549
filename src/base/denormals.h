// denormals.h - subnormal floats count as zero, for speed.
//
// A sum or product of subnormal operands takes many times as long as any other on x86. The
// moments that Adam keeps for pixels that are almost never lit sink into that range.

#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace passel {

/// Flushes subnormal operands and results to zero in this thread while it lives (FTZ and DAZ).
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }
#else
  FlushDenormals() {}  // elsewhere subnormals cost nothing worth a mode
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  unsigned before_;
#endif
};

}  // namespace passel
