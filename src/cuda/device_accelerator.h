// device_accelerator.h - the Accelerator of a plugin, on any Device; it writes to the plugin's log.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "compute/accelerator.h"
#include "cuda/device.h"
#include "cuda/device_step_engine.h"
#include "cuda/mapped_arena.h"
#include "cuda/plugin_log.h"

namespace passel::cuda {

class DeviceAccelerator : public Accelerator {
 public:
  explicit DeviceAccelerator(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  const AcceleratorInfo& info() const override { return device_->info(); }
  Result<std::unique_ptr<StepEngine>> CreateStepEngine(const StepEngineOptions& options) override {
    DeviceStepEngineHooks hooks;
    hooks.warn = [](std::string_view text) { PluginLogWarning(std::string(text)); };
    return CreateDeviceStepEngine(*device_, options, hooks);
  }
  Result<std::unique_ptr<DeviceArena>> CreateArena(const DeviceArenaShape& shape) override {
    return CreateMappedArena(*device_, shape);
  }
  Result<std::unique_ptr<DeviceArena>> ImportArena(int fd, const DeviceArenaShape& shape) override {
    return ImportMappedArena(*device_, fd, shape);
  }

 protected:
  Device& device() { return *device_; }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace passel::cuda
