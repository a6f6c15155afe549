// large_gemm_emulator.h - the library's products, with each of its epilogues, by plain loops.

#pragma once

#include "cuda/plan.h"

namespace passel::cuda {

/// Sums in double precision, down k in order. A mask is written as plan.h says, the bits behind
/// each row's last as ones: nobody may rely on them.
void EmulateLargeGemm(const LargeGemm& gemm);

}  // namespace passel::cuda
