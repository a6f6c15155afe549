// kernels.h - all kernels of a training step.

#pragma once

#include <variant>

#include "cuda/kernels/signal.h"

namespace passel::cuda {

using AnyKernel = std::variant<SignalKernel>;

}  // namespace passel::cuda
