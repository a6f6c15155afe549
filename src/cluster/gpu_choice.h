// gpu_choice.h - which GPUs of a machine a job computes on: what --gpus names, within what
// CUDA_VISIBLE_DEVICES leaves.
//
// A device is a GPU, or an instance of one that is split by MIG: then the GPU itself runs nothing.
// Devices are handed to processes by UUID. Indices depend on the order in which who counts them
// looks at them; here they are those of nvidia-smi, in order of PCI addresses.
//
// Thread safety: no state.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/topology.h"

namespace passel {

/// The least that the GPU code is built for: 7.5.
inline constexpr int kMinComputeCapability = 75;

/// What --device asks for.
struct DeviceRequest {
  enum class Kind {
    kAuto,  ///< a GPU where one can be used, else the CPU
    kCpu,
    kCuda,  ///< a GPU, or an error
  };
  Kind kind = Kind::kAuto;
  std::string uuid;  ///< of kCuda; "": any
};
/// "auto", "cpu", "cuda" or "cuda:UUID". Errors: kInvalidArgument.
Result<DeviceRequest> ParseDeviceRequest(std::string_view text);

struct ComputeDevice {
  int gpu = 0;                  ///< index in Topology::gpus
  std::optional<int> instance;  ///< index in Gpu::mig_instances
  std::string uuid;             ///< "GPU-..." or "MIG-..."
  std::string name;
  std::uint64_t memory_bytes = 0;

  /// "0", or "0:3" for an instance.
  std::string Index() const;
  friend bool operator==(const ComputeDevice&, const ComputeDevice&) = default;
};

/// What the environment of the launcher says about GPUs.
struct CudaEnvironment {
  std::optional<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES; nothing: not set
  std::string device_order;                    ///< CUDA_DEVICE_ORDER

  static CudaEnvironment OfThisProcess();
};

struct DeviceChoice {
  std::vector<ComputeDevice> devices;  ///< at least one, each once
  std::vector<std::string> warnings;   ///< one sentence each
};

/// `spec`: "all", or a list of "2" (GPU 2), "2:0" (its MIG instance 0) and UUIDs or beginnings of
/// one, separated by commas; the devices are used in this order. "all" leaves out, with a warning,
/// what cannot compute. `flag` stands in messages: "--gpus".
/// Errors, one sentence each: kNotFound: the machine has no GPU, or CUDA_VISIBLE_DEVICES leaves
/// none; kInvalidArgument: what is named is not there, not visible, there twice, split by MIG or
/// too old, or the text is no list.
Result<DeviceChoice> ChooseDevices(const Topology& topology, std::string_view spec,
                                   const CudaEnvironment& environment,
                                   std::string_view flag = "--gpus");

}  // namespace passel
