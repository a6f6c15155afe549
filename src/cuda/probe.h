// probe.h - which GPU a process may compute on, or one sentence on why it cannot.
//
// The questions are asked through DriverCalls, so that every answer of a driver can be played to
// Probe() on a machine that has none.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/accelerator.h"

namespace passel::cuda {

/// Oldest compute capability for which the plugin has code.
inline constexpr int kMinComputeCapability = 75;

/// What one device says of itself.
struct DeviceFacts {
  std::string name;
  std::string uuid;  ///< "GPU-..." or "MIG-..."
  int compute_capability = 0;
  std::uint64_t memory_bytes = 0;
  int multiprocessors = 0;
  bool prohibited = false;                 ///< compute mode "prohibited"
  bool unified_addressing = false;         ///< host and device share one address space
  bool host_native_atomics = false;        ///< GPU and CPU may update one word in host memory
  bool virtual_memory_management = false;  ///< memory can be exported as a file descriptor
  bool peer_access = false;                ///< to at least one other device of this process
  bool mps = false;                        ///< contexts are made in an MPS server
};

/// What one device may do in the memory of another.
struct PeerFacts {
  bool can_access = false;      ///< addresses it
  bool access_enabled = false;  ///< and the link between the two is up
  bool native_atomics = false;  ///< with all atomic operations that it has in its own
};

/// An answer of the driver; ok() when `error` is 0.
struct DriverAnswer {
  int error = 0;
  std::string text;  ///< "cudaErrorNoDevice (no CUDA-capable device is detected)"
  bool ok() const { return error == 0; }
};

class DriverCalls {
 public:
  virtual ~DriverCalls() = default;
  /// 13000 for CUDA 13.0; 0 without a driver.
  virtual DriverAnswer DriverVersion(int* version) = 0;
  virtual int RuntimeVersion() = 0;
  /// "580.159.03"; empty if it cannot be found out.
  virtual std::string DriverRelease() = 0;
  virtual DriverAnswer DeviceCount(int* count) = 0;
  virtual DriverAnswer Facts(int device, DeviceFacts* facts) = 0;
  /// What `device` can do in the memory of `peer`.
  virtual DriverAnswer Peer(int device, int peer, PeerFacts* facts) = 0;
};

struct ProbedDevice {
  int ordinal = 0;
  DeviceFacts facts;
  AcceleratorInfo info;  ///< without free_bytes
};

/// Looks for the device with this UUID, or for the first without one. A UUID may be cut short as
/// long as it names one device; upper and lower case, and "GPU-" or "MIG-" before it, count as one.
/// Errors: kNotFound for no driver, no device, no such device; kFailedPrecondition for a driver or
/// a device that is too old or refuses us; kUnavailable where asking again may help.
Result<ProbedDevice> Probe(DriverCalls& driver, const std::string& uuid);

/// The number in this process of the device with the UUID `home`, in whose memory device `own` can
/// do what updates of parameters take. Errors, one sentence with both UUIDs: kFailedPrecondition
/// where this process does not see it, one is a MIG instance, or accesses or atomic operations
/// between the two are missing.
Result<int> ProbePeer(DriverCalls& driver, int own, const std::string& own_uuid,
                      const std::string& home);

/// The driver's release out of the text of /proc/driver/nvidia/version; empty if there is none.
std::string ParseDriverRelease(const std::string& text);

}  // namespace passel::cuda
