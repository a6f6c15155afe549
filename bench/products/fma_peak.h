// fma_peak.h - how many multiplications and additions a core makes at most.

#pragma once

namespace passel::bench {

enum class VectorSet { kBaseline, kAvx2, kAvx512 };

/// The widest that this processor has.
VectorSet BestVectorSet();
const char* VectorSetName(VectorSet set);

/// GF/s (10^9 float32 additions and multiplications a second) of one run of about 50 us of
/// independent fused multiply-adds on registers, with the widest vectors of `set`.
double MeasurePeak(VectorSet set);

}  // namespace passel::bench
