// plugin.cc - the one symbol of libpassel_cuda.so, and what stands behind it.

#include <fmt/core.h>

#include <memory>
#include <utility>

#include "compute/accelerator.h"
#include "compute/plugin_entry.h"
#include "cuda/cuda_device.h"
#include "cuda/device_accelerator.h"
#include "cuda/plugin_log.h"
#include "cuda/probe.h"
#include "cuda/runtime_driver_calls.h"

namespace passel::cuda {
namespace {

Result<std::unique_ptr<Accelerator>> Open(const AcceleratorOptions& options) {
  RuntimeDriverCalls driver;
  PASSEL_ASSIGN_OR_RETURN(const ProbedDevice probed, Probe(driver, options.uuid));
  const std::uint64_t limit =
      options.memory_fraction >= 1
          ? 0  // none of ours
          : static_cast<std::uint64_t>(options.memory_fraction *
                                       static_cast<double>(probed.facts.memory_bytes));
  PASSEL_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenCudaDevice(probed, limit));
  const DeviceFacts& facts = probed.facts;
  PluginLogInfo(fmt::format(
      "GPU {} ({}): compute capability {}.{}, {} multiprocessors, {} of {} MiB free, driver {}; "
      "host atomics: {}, peer access: {}, memory as a file descriptor: {}, MPS: {}",
      facts.name, facts.uuid, facts.compute_capability / 10, facts.compute_capability % 10,
      facts.multiprocessors, device->info().free_bytes >> 20, facts.memory_bytes >> 20,
      probed.info.driver, facts.host_native_atomics ? "yes" : "no",
      facts.peer_access ? "yes" : "no", facts.virtual_memory_management ? "yes" : "no",
      facts.mps ? "yes" : "no"));
  return std::unique_ptr<Accelerator>(std::make_unique<DeviceAccelerator>(std::move(device)));
}

}  // namespace
}  // namespace passel::cuda

extern "C" __attribute__((visibility("default"))) int passel_accelerator_v1(
    const passel::AcceleratorHost* host, passel::AcceleratorPlugin* plugin) {
  const int refused = passel::AnswerHost(*host, passel::cuda::Open, plugin);
  if (refused == 0) passel::cuda::SetLog(*host);
  return refused;
}
