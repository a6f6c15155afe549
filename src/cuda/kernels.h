// kernels.h - all kernels: of a training step, and of a push to parameters in device memory.

#pragma once

#include <variant>

#include "cuda/kernels/claimed_update.h"
#include "cuda/kernels/cross_entropy.h"
#include "cuda/kernels/gather.h"
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/nonfinite.h"
#include "cuda/kernels/relu_mask.h"
#include "cuda/kernels/report.h"
#include "cuda/kernels/signal.h"
#include "cuda/kernels/update.h"

namespace passel::cuda {

using AnyKernel = std::variant<
    SignalKernel, GatherKernel, SmallGemm, MediumGemm, LargeTileGemm, CrossEntropyKernel,
    ReluMaskKernel, NonFiniteKernel, ReportKernel, UpdateKernel<SgdRule>,
    UpdateKernel<MomentumRule>, UpdateKernel<NesterovRule>, UpdateKernel<AdagradRule>,
    UpdateKernel<RmsPropRule>, UpdateKernel<CenteredRmsPropRule>, UpdateKernel<AdamRule>,
    UpdateKernel<FtrlRule>, UpdateKernel<FtrlPowerRule>, AtomicSgdKernel, ClaimedUpdate<SgdRule>,
    ClaimedUpdate<MomentumRule>, ClaimedUpdate<NesterovRule>, ClaimedUpdate<AdagradRule>,
    ClaimedUpdate<RmsPropRule>, ClaimedUpdate<CenteredRmsPropRule>, ClaimedUpdate<AdamRule>,
    ClaimedUpdate<FtrlRule>, ClaimedUpdate<FtrlPowerRule>, PushReportKernel>;

}  // namespace passel::cuda
