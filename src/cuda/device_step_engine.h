// device_step_engine.h - a StepEngine (compute/step_engine.h) on any Device.

#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "compute/step_engine.h"
#include "cuda/device.h"

namespace passel::cuda {

struct DeviceStepEngineHooks {
  /// Gets a line when the memory of the arena cannot be registered, or when large layers have to do
  /// without the library that is for them, or when a layer is computed in float32 though another
  /// math was asked for. May be empty.
  std::function<void(std::string_view)> warn;
  /// Looks at the number of the oldest step between two looks at the health of the device.
  unsigned looks_per_health = 500;
};

/// `device` must outlive the engine. Where its driver refuses to register the memory that
/// options.memory names, values and gradients are copied through pinned memory by the calling
/// thread: then a step sees the values as they are at Start().
/// Errors: kInvalidArgument (ValidateStepOptions()); kResourceExhausted and others, from the
/// device.
Result<std::unique_ptr<StepEngine>> CreateDeviceStepEngine(Device& device,
                                                           const StepEngineOptions& options,
                                                           const DeviceStepEngineHooks& hooks);

}  // namespace passel::cuda
