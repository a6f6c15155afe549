// test_plugin.cc - a plugin as the loader may meet it; which one, the name of its file says:
// abi.so, build.so and open.so are wrong in that.

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "compute/accelerator.h"
#include "compute/build_id.h"

namespace {

const passel::AcceleratorHost* g_host = nullptr;

class TestAccelerator : public passel::Accelerator {
 public:
  explicit TestAccelerator(passel::AcceleratorInfo info) : info_(std::move(info)) {}
  const passel::AcceleratorInfo& info() const override { return info_; }
  passel::Result<std::unique_ptr<passel::StepEngine>> CreateStepEngine(
      const passel::StepEngineOptions&) override {
    return passel::InvalidArgument("the test plugin computes nothing");
  }
  passel::Result<std::unique_ptr<passel::DeviceArena>> CreateArena(
      const passel::DeviceArenaShape&) override {
    return passel::FailedPrecondition("the test plugin has no memory");
  }
  passel::Result<std::unique_ptr<passel::DeviceArena>> ImportArena(
      int, const passel::DeviceArenaShape&) override {
    return passel::FailedPrecondition("the test plugin has no memory");
  }

 private:
  passel::AcceleratorInfo info_;
};

passel::Result<std::unique_ptr<passel::Accelerator>> Open(
    const passel::AcceleratorOptions& options) {
  g_host->log_info("the test plugin opens");
  if (options.uuid == "GPU-none") return passel::NotFound("there is no such test device");
  passel::AcceleratorInfo info;
  info.name = "test device";
  info.uuid = options.uuid;
  info.memory_bytes = static_cast<std::uint64_t>(1000 * options.memory_fraction);
  return std::unique_ptr<passel::Accelerator>(std::make_unique<TestAccelerator>(std::move(info)));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int passel_accelerator_v1(
    const passel::AcceleratorHost* host, passel::AcceleratorPlugin* plugin) {
  g_host = host;
  Dl_info self{};
  dladdr(reinterpret_cast<void*>(&Open), &self);
  const std::string_view file = self.dli_fname;
  plugin->abi = file.ends_with("/abi.so") ? 999 : passel::kAcceleratorAbi;
  plugin->size = sizeof(passel::AcceleratorPlugin);
  plugin->build_id = file.ends_with("/build.so") ? "0.0.0-other" : passel::BuildId();
  plugin->open = file.ends_with("/open.so") ? nullptr : Open;
  return 0;
}
