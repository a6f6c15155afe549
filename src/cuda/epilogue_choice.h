// epilogue_choice.h - which epilogues of cuBLASLt a step uses.
//
// A build of the library, on one GPU, has an epilogue for some types, shapes and alignments, and
// not for others. So the device is asked, once, with the very products that the plan would hold.
// Where it says no, kernels of our own do that work for that layer, and the log says why.
//
// A mask is kept only where both sides can: the product that writes it and the one that applies it.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cuda/device.h"
#include "cuda/step_plan.h"

namespace passel::cuda {

/// Device::CanRun(), or a test's answers.
using AskDevice = std::function<Result<Device::Verdict>(const LargeGemm&)>;

/// [layer]. An epilogue is chosen if `ask` says yes to every product that needs it, in the plans of
/// all `hosts`, so that every gradient slot gets the same plan. `explain` gets a line for each that
/// is refused; may be empty. Environment: PASSEL_CUBLASLT_EPILOGUES is "all", the default, or
/// "none", which asks nothing and chooses nothing.
/// Errors: kInvalidArgument for another value of the variable; those of `ask`.
Result<std::vector<LayerEpilogues>> ChooseEpilogues(
    const StepEngineOptions& options, const StepMemory& memory,
    const std::vector<StepHostMemory>& hosts, const AskDevice& ask,
    const std::function<void(std::string_view)>& explain);

/// Describes the layers that the library computes, for a log line: "layer 0: RELU_AUX_BIAS,
/// DRELU_BGRAD; layer 1: BGRADA; layer 2: none". Empty if there are none.
std::string DescribeEpilogues(const StepEngineOptions& options,
                              const std::vector<LayerEpilogues>& epilogues);

}  // namespace passel::cuda
