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

/// The kernels that push, of every rule and scope.
template <typename List>
struct PushKernelsOf;
template <typename... Rules>
struct PushKernelsOf<RuleList<Rules...>> {
  template <typename... Others>
  using Or =
      std::variant<Others..., AtomicSgdKernel<Scope::kGpu>, AtomicSgdKernel<Scope::kSystem>,
                   ClaimedUpdate<Rules, Scope::kGpu>..., ClaimedUpdate<Rules, Scope::kSystem>...>;
};

using AnyKernel =
    PushKernelsOf<UpdateRules>::Or<GatherKernel, SmallGemm, MediumGemm, LargeTileGemm,
                                   SmallGemmUpdate, MediumGemmUpdate, LargeTileGemmUpdate,
                                   CrossEntropyKernel, ReluMaskKernel, NonFiniteKernel,
                                   UpdateGateKernel, ReportKernel, FetchKernel, PushReportKernel>;

}  // namespace passel::cuda
