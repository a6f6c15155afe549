// runtime_driver_calls.h - DriverCalls of the CUDA runtime.

#pragma once

#include <string>

#include "cuda/probe.h"

namespace passel::cuda {

class RuntimeDriverCalls : public DriverCalls {
 public:
  DriverAnswer DriverVersion(int* version) override;
  int RuntimeVersion() override;
  std::string DriverRelease() override;
  DriverAnswer DeviceCount(int* count) override;
  DriverAnswer Facts(int device, DeviceFacts* facts) override;
  DriverAnswer Peer(int device, int peer, PeerFacts* facts) override;
};

}  // namespace passel::cuda
