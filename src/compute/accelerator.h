// accelerator.h - what a GPU plugin offers to a worker, and the one C symbol through which it does.
//
// The program links no GPU library. A task that was asked to compute on a GPU opens
// libpassel_cuda.so (compute/accelerator_loader.h), calls passel_accelerator_v1() and gets an
// AcceleratorPlugin. C++ objects cross the border, so both sides must come from one build: the ABI
// number and the build id are compared, and anything else is refused. A plugin is never unloaded.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "compute/device_arena.h"
#include "compute/step_engine.h"

namespace passel {

/// Raised with any change of this file, of device_arena.h or of step_engine.h.
inline constexpr std::uint32_t kAcceleratorAbi = 4;

/// One GPU, as it says of itself.
struct AcceleratorInfo {
  std::string name;            ///< "NVIDIA H100 80GB HBM3"
  std::string uuid;            ///< "GPU-..." or "MIG-..."
  int compute_capability = 0;  ///< 90 for 9.0
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::string driver;  ///< "580.159 (CUDA 13.0)"
  /// Processes on it are clients of one MPS server, where a kernel may outlive its process.
  bool mps = false;
};

struct AcceleratorOptions {
  std::string uuid;  ///< empty: the first that this process sees
  /// At most this share of the GPU's memory is used, above 0 and up to 1.
  double memory_fraction = 1;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual const AcceleratorInfo& info() const = 0;
  /// Errors: kResourceExhausted with need and what is free; kInvalidArgument for a network that it
  /// cannot compute, with the limit.
  virtual Result<std::unique_ptr<StepEngine>> CreateStepEngine(
      const StepEngineOptions& options) = 0;

  /// Memory for parameters that processes on this GPU share; zero at first.
  /// Errors: kFailedPrecondition where this GPU cannot, with what to use instead;
  /// kResourceExhausted.
  virtual Result<std::unique_ptr<DeviceArena>> CreateArena(const DeviceArenaShape& shape) = 0;
  /// That of another process, in this GPU's memory or, where shape.home says so, in that of another
  /// that this process sees. The caller keeps `fd`. Errors: as above, also where this GPU cannot
  /// work in the other's memory; kDataLoss if it is another arena, or of another shape.
  virtual Result<std::unique_ptr<DeviceArena>> ImportArena(int fd,
                                                           const DeviceArenaShape& shape) = 0;
};

/// What the plugin may call.
struct AcceleratorHost {
  std::uint32_t abi = kAcceleratorAbi;
  std::uint32_t size = sizeof(AcceleratorHost);
  const char* build_id = nullptr;
  void (*log_info)(const char* text) = nullptr;
  void (*log_warning)(const char* text) = nullptr;
};

/// What the plugin fills in.
struct AcceleratorPlugin {
  std::uint32_t abi = 0;
  std::uint32_t size = 0;
  const char* build_id = nullptr;
  /// Opens a device. Errors, one sentence each with its remedy: kNotFound for no driver, no device
  /// or no such device; kFailedPrecondition for a driver or a device that is too old; kUnavailable
  /// where opening it again later may help; kResourceExhausted where it has no memory left.
  Result<std::unique_ptr<Accelerator>> (*open)(const AcceleratorOptions& options) = nullptr;
};

/// The symbol's name and type. Returns 0, or 1 when `host` is of another build: then only abi, size
/// and build_id of `*plugin` are set.
inline constexpr const char* kAcceleratorSymbol = "passel_accelerator_v1";
using AcceleratorEntry = int (*)(const AcceleratorHost* host, AcceleratorPlugin* plugin);

}  // namespace passel
