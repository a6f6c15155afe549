// large_gemm_emulator.h - the library's products, with each of its epilogues, by plain loops.

#pragma once

#include "cuda/plan.h"

namespace passel::cuda {

/// Sums in double precision, down k in order.
void EmulateLargeGemm(const LargeGemm& gemm);

}  // namespace passel::cuda
