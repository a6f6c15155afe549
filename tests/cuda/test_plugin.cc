// test_plugin.cc - plugins as the loader may meet them; which one, the build says.

#include <cstdint>
#include <memory>
#include <utility>

#include "compute/accelerator.h"
#include "compute/build_id.h"

#if !defined(PASSEL_TEST_ABI)
#define PASSEL_TEST_ABI passel::kAcceleratorAbi
#endif
#if !defined(PASSEL_TEST_BUILD_ID)
#define PASSEL_TEST_BUILD_ID passel::BuildId()
#endif
#if !defined(PASSEL_TEST_HAS_OPEN)
#define PASSEL_TEST_HAS_OPEN 1
#endif
#if !defined(PASSEL_TEST_ENTRY)
#define PASSEL_TEST_ENTRY passel_accelerator_v1
#endif

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

extern "C" __attribute__((visibility("default"))) int PASSEL_TEST_ENTRY(
    const passel::AcceleratorHost* host, passel::AcceleratorPlugin* plugin) {
  g_host = host;
  plugin->abi = PASSEL_TEST_ABI;
  plugin->size = sizeof(passel::AcceleratorPlugin);
  plugin->build_id = PASSEL_TEST_BUILD_ID;
  plugin->open = PASSEL_TEST_HAS_OPEN ? Open : nullptr;
  return 0;
}
