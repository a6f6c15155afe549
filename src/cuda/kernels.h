// kernels.h - all kernels: of a training step, and of a push to parameters in device memory.

#pragma once

#include <variant>

#include "cuda/kernels/claimed_update.h"
#include "cuda/kernels/cross_entropy.h"
#include "cuda/kernels/fetch.h"
#include "cuda/kernels/gather.h"
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/nonfinite.h"
#include "cuda/kernels/relu_mask.h"
#include "cuda/kernels/report.h"
#include "cuda/kernels/update.h"
#include "cuda/kernels/update_gate.h"

namespace passel::cuda {

using AnyKernel = std::variant<
    GatherKernel, SmallGemm, MediumGemm, LargeTileGemm, SmallGemmUpdate, MediumGemmUpdate,
    LargeTileGemmUpdate, CrossEntropyKernel, ReluMaskKernel, NonFiniteKernel, UpdateGateKernel,
    ReportKernel, AtomicSgdKernel<Scope::kGpu>, ClaimedUpdate<SgdRule, Scope::kGpu>,
    ClaimedUpdate<MomentumRule, Scope::kGpu>, ClaimedUpdate<NesterovRule, Scope::kGpu>,
    ClaimedUpdate<AdagradRule, Scope::kGpu>, ClaimedUpdate<RmsPropRule, Scope::kGpu>,
    ClaimedUpdate<CenteredRmsPropRule, Scope::kGpu>, ClaimedUpdate<AdamRule, Scope::kGpu>,
    ClaimedUpdate<FtrlRule, Scope::kGpu>, ClaimedUpdate<FtrlPowerRule, Scope::kGpu>,
    AtomicSgdKernel<Scope::kSystem>, ClaimedUpdate<SgdRule, Scope::kSystem>,
    ClaimedUpdate<MomentumRule, Scope::kSystem>, ClaimedUpdate<NesterovRule, Scope::kSystem>,
    ClaimedUpdate<AdagradRule, Scope::kSystem>, ClaimedUpdate<RmsPropRule, Scope::kSystem>,
    ClaimedUpdate<CenteredRmsPropRule, Scope::kSystem>, ClaimedUpdate<AdamRule, Scope::kSystem>,
    ClaimedUpdate<FtrlRule, Scope::kSystem>, ClaimedUpdate<FtrlPowerRule, Scope::kSystem>,
    FetchKernel, PushReportKernel>;

}  // namespace passel::cuda
