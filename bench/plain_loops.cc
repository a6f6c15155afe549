#include "bench/plain_loops.h"

namespace passel::bench {

void Triad(float* __restrict a, const float* __restrict b, const float* __restrict c, float s,
           std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] + s * c[i];
}

}  // namespace passel::bench
